// Gathers ahead: a rank's backward gathers a weight earlier than its first use needs it. The peer lane is in
// order, so a gather behind an exchange waits with it for the gradient, though the lane could bring it
// before.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// Moves replayed gathers of parameters to where they stand before `exchanges` exchanges more. Those with less
// than half of an exchange's average bytes, such as of biases, do not count: they are over at once. Gathers
// keep their order, and so does all else.
void move_gathers(const Graph& graph, std::uint32_t exchanges, std::vector<SequenceStep>& sequence);

}  // namespace stowage
