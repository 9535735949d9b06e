// Gathers ahead: a rank's backward gathers a weight earlier than its first use needs it. The peer lane is in
// order: a gather behind an exchange waits with the exchange for the gradient, though the lane could run the
// gather before.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// Moves each replayed gather of a parameter to before the last `exchanges` exchanges that precede it.
// Exchanges of less than half of the average bytes, such as those of biases, do not count, because they end
// at once. Gathers keep their order, and so do all other steps.
void move_gathers(const Graph& graph, std::uint32_t exchanges, std::vector<SequenceStep>& sequence);

}  // namespace stowage
