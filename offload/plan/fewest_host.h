// The fewest host bytes that a step's plans take within some device memory: what a refusal names.
#pragma once

#include <vector>

#include "offload/plan/cells.h"

namespace stowage {

struct FewestHost {
  std::vector<RankedPlan> plans;  // that the search found
  Bytes bytes = unlimited;        // the fewest of all; unlimited: there is no plan
  // The search ended before a budget of a hundredth less was searched in vain: fewer may do.
  bool at_most = false;
};

// Searches for the plan without a limit of host memory, then in budgets of less than the fewest bytes so far,
// by steps that double until one is searched in vain, then between the two. Ends with three times the work of
// the first search. `cells` has been asked nothing before, so that the answer depends on `device`, an arena's
// bytes, alone: then every budget of host memory from `bytes` up has a plan. `others`: host bytes of plans
// that fit besides.
FewestHost fewest_host(Cells& cells, Bytes device, const std::vector<Bytes>& others);

}  // namespace stowage
