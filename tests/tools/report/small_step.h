// A small GPT's step, planned tightly enough that buckets live everywhere they can.
#pragma once

#include <variant>

#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/support/quick_plan.h"

namespace stowage::report {

struct SmallStep {
  Machine machine;
  Graph graph;
  Plan plan;

  explicit SmallStep(const PlanOptions& options = {}) {
    machine.overhead_bytes = 1 << 20;
    GraphBuilder builder;
    const BuiltModel model = gpt(builder, {.layers = 3, .width = 64, .heads = 2, .sequence = 32, .batch = 4});
    graph = builder.finish(model.loss, {});
    plan = std::get<Plan>(
        testing::quick_plan(graph, machine, budget(options.policy == Policy::none ? 100 : 40), options));
  }

  // For an arena of so many percent of the need's.
  Budget budget(Bytes percent) const {
    return {.device = machine.budget_for(machine.arena_in(need_bytes(graph, machine)) * percent / 100)};
  }
};

}  // namespace stowage::report
