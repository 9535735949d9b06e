#include "tools/replay/graph_trace.h"

#include <gtest/gtest.h>

#include "stowage/models.h"

namespace stowage {
namespace {

using Operations = std::vector<TraceOperation>;
constexpr TraceKind make = TraceKind::allocate, drop = TraceKind::free;

Tensor floats(const char* name, std::int64_t count, TensorKind kind) {
  return {name, DataType::f32, {count}, kind, {}};
}

// x, w -> a (with scratch s) -> b; b reads a twice; w is updated in place.
Graph small_step() {
  Graph graph;
  graph.tensors = {floats("x", 1, TensorKind::input), floats("w", 2, TensorKind::parameter),
                   floats("a", 3, TensorKind::activation), floats("s", 4, TensorKind::workspace),
                   floats("b", 5, TensorKind::activation)};
  Op first, second, third;
  first.reads = {0, 1};
  first.writes = {2, 3};
  second.reads = {2, 2};
  second.writes = {4};
  third.reads = {4, 1};
  third.writes = {1};
  graph.ops = {first, second, third};
  return graph;
}

TEST(GraphTrace, AllocatesAtTheProducerAndFreesAfterTheLastReader) {
  const Graph graph = small_step();
  const AllocationTrace trace = trace_of_steps({{graph}});
  const Operations expected{{make, 0, 8, 0},  {make, 1, 4, 0},  {make, 2, 12, 0},
                            {make, 3, 16, 0}, {drop, 1, 4, 0},  {drop, 3, 16, 0},
                            {make, 4, 20, 0}, {drop, 2, 12, 0}, {drop, 4, 20, 0}};
  EXPECT_EQ(trace.operations, expected);
  EXPECT_EQ(trace.iterations, std::vector<std::size_t>{1});
}

TEST(GraphTrace, HasAnIterationForEachGraph) {
  const std::vector<Graph> graphs{small_step(), small_step()};
  const AllocationTrace trace = trace_of_steps(graphs);
  EXPECT_EQ(trace.iterations, (std::vector<std::size_t>{1, 9}));
  EXPECT_EQ(trace.operations.size(), 17U);
  EXPECT_EQ(trace_of_steps({}).operations.size(), 0U);
}

TEST(GraphTrace, LeavesParametersAndOptimizerStateOfAGptAlone) {
  GraphBuilder builder;
  ModelConfig config{.layers = 2, .width = 64, .heads = 2};
  config.sequence = 32;
  config.batch = 2;
  const BuiltModel model = gpt(builder, config);
  const Graph graph = builder.finish(model.loss, AdamW{});
  Bytes kept = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state)
      kept += tensor.bytes();
  }
  const AllocationTrace trace = trace_of_steps({{graph}});
  Bytes live = 0;
  for (const TraceOperation& operation : trace.operations) {
    live += operation.kind == drop ? -operation.bytes : operation.bytes;
  }
  EXPECT_EQ(live, kept);
  EXPECT_GT(peak_live_bytes(trace), kept);
}

}  // namespace
}  // namespace stowage
