// Plans for tests of the code that executes plans. Under a sanitizer the planner looks only for a few
// candidates of one or two cells. It then takes a fifth of the time; its plans are as varied, but slower.
#pragma once

#include "offload/plan/problem/settings.h"
#include "stowage/planner.h"
#include "tests/support/draws.h"

namespace stowage::testing {

inline void take_few_candidates(PlanOptions& options) {
  own_settings(options).most_work = 1;
  own_settings(options).patience = 1;
  own_settings(options).trials = 0;
  own_settings(options).rooms = {1, 0.9, 0.7, 0.5};
}

// Returns a planner for tests that ask more than one question about a graph. After the first question, each
// further budget, need_bytes() and minimum_bytes() costs little. Graph and machine must outlive it.
inline Planner quick_planner(const Graph& graph, const Machine& machine, PlanOptions options = {}) {
  if (sanitized) take_few_candidates(options);
  return {graph, machine, options};
}

inline std::variant<Plan, Infeasible> quick_plan(const Graph& graph, const Machine& machine,
                                                 const Budget& budget, const PlanOptions& options = {}) {
  return quick_planner(graph, machine, options).answer(budget).outcome;
}

// Returns the plan in the least memory that works.
inline Plan quick_least_plan(const Graph& graph, const Machine& machine, const PlanOptions& options = {}) {
  Planner planner = quick_planner(graph, machine, options);
  return std::get<Plan>(planner.answer({.device = planner.minimum_bytes()}).outcome);
}

}  // namespace stowage::testing
