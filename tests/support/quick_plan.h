// Plans for tests of what executes them. Under a sanitizer the planner looks only for a few candidates of a
// cell or two: it takes a fifth of the time, and its plans are no less varied, only slower.
#pragma once

#include "stowage/planner.h"
#include "tests/support/draws.h"

namespace stowage::testing {

inline std::variant<Plan, Infeasible> quick_plan(const Graph& graph, const Machine& machine,
                                                 const Budget& budget, PlanOptions options = {}) {
  if (sanitized) {
    options.settings.most_work = 1;
    options.settings.patience = 1;
    options.settings.trials = 0;
    options.settings.rooms = {1, 0.9, 0.7, 0.5};
  }
  return make_plan(graph, machine, budget, options);
}

}  // namespace stowage::testing
