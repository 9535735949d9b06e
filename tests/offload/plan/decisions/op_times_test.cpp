#include "offload/plan/decisions/op_times.h"

#include <gtest/gtest.h>

#include "src/graph/cost.h"
#include "stowage/trace.h"

namespace stowage {
namespace {

// In one unit, `wide` makes what `small` and `large` read, and no backward op does; these make what backward
// reads.
constexpr const char* shared = R"({"stowage_trace": 1, "loss": "loss", "optimizer": {"name": "adamw"}}
{"tensor": "w", "kind": "parameter", "type": "f32", "shape": [1000]}
{"tensor": "wide.out", "kind": "activation", "bytes": 8000}
{"tensor": "small.out", "kind": "activation", "bytes": 1000}
{"tensor": "large.out", "kind": "activation", "bytes": 3000}
{"tensor": "x", "kind": "activation", "bytes": 500}
{"tensor": "loss", "kind": "activation", "type": "f32", "shape": []}
{"tensor": "gx", "kind": "activation", "bytes": 500}
{"tensor": "g", "kind": "gradient", "of": "w", "type": "f32", "shape": [1000]}
{"op": "wide", "phase": "forward", "unit": "u", "reads": ["w"], "writes": ["wide.out"], "flops": 8e9, "bytes": 12000}
{"op": "small", "phase": "forward", "unit": "u", "reads": ["wide.out"], "writes": ["small.out"], "flops": 1e9, "bytes": 9000}
{"op": "large", "phase": "forward", "unit": "u", "reads": ["wide.out"], "writes": ["large.out"], "flops": 2e9, "bytes": 9000}
{"op": "join", "phase": "forward", "unit": "u", "reads": ["small.out", "large.out"], "writes": ["x"], "flops": 1000, "bytes": 4500}
{"op": "loss", "phase": "forward", "unit": "end", "reads": ["x"], "writes": ["loss"], "flops": 1000, "bytes": 504}
{"op": "back.loss", "phase": "backward", "unit": "end", "reads": ["x", "loss"], "writes": ["gx"], "flops": 1000, "bytes": 1004}
{"op": "back", "phase": "backward", "unit": "u", "reads": ["small.out", "large.out", "gx"], "writes": ["g"], "flops": 1000, "bytes": 4500}
)";

TEST(OpTimes, WhatSeveralAreRebuiltFromCostsEachAPartByItsBytes) {
  const Graph graph = graph_from_trace(shared);
  const Machine machine;
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const OpTimes times(problem);
  const auto seconds = [&](OpId op) { return op_seconds(graph.op(op), machine); };
  ASSERT_EQ(graph.op(0).name, "wide");
  EXPECT_DOUBLE_EQ(times.seconds_to_rebuild(1), seconds(1) + seconds(0) / 4);
  EXPECT_DOUBLE_EQ(times.seconds_to_rebuild(2), seconds(2) + seconds(0) * 3 / 4);
  EXPECT_EQ(times.seconds_to_rebuild(0), 0) << "which no item keeps";
}

}  // namespace
}  // namespace stowage
