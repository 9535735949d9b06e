// The judge of small instances: the least step time of any plan under a budget, by looking at them all.
#pragma once

#include <optional>

#include "stowage/plan.h"
#include "tests/offload/oracle/game.h"

namespace stowage::oracle {

struct Answer {
  // No plan is faster than `lower`; infinite: there is no plan at all. `exact`: a plan of this time was
  // found.
  double lower = 0;
  bool exact = false;
  // The fastest plan found; none where `lower` is infinite, or where no placement was found for any schedule
  // that was looked at.
  std::optional<Plan> plan;
  Choice choice;  // of the plan, or of the schedule that has no placement
  std::size_t labels = 0;
};

struct Effort {
  std::size_t labels = 2'500'000;
  int schedules = 240;  // for which a placement is sought
};

// With `only`, of plans with these choices alone. `budget.device` is what plans may use, overhead not among
// it.
Answer ask(const Game& game, const Graph& graph, const Budget& budget, const Effort& effort = {},
           const Choice* only = nullptr);

}  // namespace stowage::oracle
