// make_plan: graph, machine and budget in, plan out. Pure functions: no device, clock or thread.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

enum class Policy : std::uint8_t {
  automatic,  // the fastest plan that fits
  none,       // everything on the device, nothing recomputed: what the step *needs*
};

struct PlanOptions {
  Policy policy = Policy::automatic;
  Bytes bucket_bytes = 0;  // 0: chosen from the link's curve
  // Of micro-batches; nothing: whichever is faster. Without effect on a graph that has one order alone.
  std::optional<MicroBatchOrder> order = std::nullopt;
};

// The plan family does not depend on the budget; a budget takes its fastest member that fits, so
// more memory never makes a slower plan, and every budget from the minimum up is feasible.
std::variant<Plan, Infeasible> make_plan(const Graph& graph, const Machine& machine, const Budget& budget,
                                         const PlanOptions& options = {});

// Planned peak of Policy::none: *need*. Of the minimum-memory plan: *minimum*.
Bytes need_bytes(const Graph& graph, const Machine& machine);
Bytes minimum_bytes(const Graph& graph, const Machine& machine, const PlanOptions& options = {});

// Discrete events over the lanes, periodic steady state.
Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine);

// Judges a plan without knowing how it was made, over three unrolled steps. Returns what is wrong,
// one sentence each; empty: valid. `budget` in device and host bytes.
std::vector<std::string> validate(const Graph& graph, const Plan& plan, const Budget& budget);

}  // namespace stowage
