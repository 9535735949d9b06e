// Moves the lifetimes that transfers fill or empty to offsets that are free for longer.
//
// A prefetch waits for the previous owners of its bytes, even where other bytes of the arena are free. The
// placement (placement.h) minimises height alone. This pass then moves each lifetime that has a prefetch or
// an offload, the largest first, to an offset where nothing else is live for some time before the prefetch
// may start and after the offload has begun.
#pragma once

#include <vector>

#include "offload/plan/problem/problem.h"
#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// Returns new offsets for the draft's lifetimes; like `offsets` they keep to `capacity`. `leads`: how long an
// offset should be free before and after the transfer, in units of the transfer's time, the most wanted
// first. A lifetime for which even the last lead is impossible stays where it is; residents, which lie at the
// bottom, all stay.
std::vector<Bytes> places_for_transfers(const Problem& problem, const Draft& draft,
                                        std::vector<Bytes> offsets, Bytes capacity,
                                        const std::vector<double>& leads);

}  // namespace stowage
