// What `stowage plan FILE` does with a graph from outside, after it has been read.
#pragma once

#include "stowage/planner.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

// Graphs that take the planner longer than a fuzzer's input should are left out.
inline bool small_enough(const Graph& graph) { return graph.ops.size() <= 48 && graph.tensors.size() <= 96; }

// Planned, or refused as a graph that the planner cannot take. A plan must hold what its validator demands,
// or be judged unsound; a call that ends in any other way is a defect.
inline void plan_or_refuse(const Graph& graph) {
  if (!small_enough(graph)) return;
  try {
    const auto result = make_plan(graph, Machine{}, Budget{}, {.policy = Policy::none});
    if (const auto* plan = std::get_if<Plan>(&result)) validate(graph, *plan, Budget{});
    minimum_bytes(graph, Machine{});
  } catch (const InvalidInput&) {
    return;
  }
}

}  // namespace stowage::fuzz
