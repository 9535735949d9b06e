// Repair pass: choices and schedules along the whole range of memory, improved by swaps.
//
// It starts without a limit and descends: at each limit the best choices known (of the paths, and those of
// the limit before) are changed, one item at a time or two at once (mostly one demoted for another that is
// promoted), as long as that makes the limited schedule faster; the next limit is just below what the result
// takes. At the bottom it turns and offers each limit what was found at the one below. So what comes out is a
// front of plans, each the fastest found that takes no more than it does. Nothing in it depends on a budget,
// so with more memory there is only more of it to choose from. Small graphs, of which all choices can be
// looked at, have a front of their own (small_front.h).
#pragma once

#include "offload/plan/limited_schedule.h"

namespace stowage {

// `paths`: choices to start from. `least`: the lowest limit that is tried. `most_ops`: work, in ops
// scheduled; what is found until then is returned.
std::vector<LimitedSketch> repaired_front(const Problem& problem, const std::vector<Choices>& paths,
                                          Bytes least, std::size_t most_ops);

}  // namespace stowage
