#include "offload/recompute/execution_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/error.h"
#include "stowage/graph_builder.h"
#include "tests/support/graph_queries.h"
#include "tests/support/small_graph.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;

// a + b, whatever that is.
Value join(GraphBuilder& builder, const std::string& name, Value a, Value b) {
  Value y = builder.activation(name, builder.tensor(a).shape);
  builder.op({name, "join", {}, {a, b}, {y}, {}, {}},
             [=](GraphBuilder& rule, const std::vector<Value>& gradients) {
               rule.add_gradient(a, gradients[0], false);
               rule.add_gradient(b, gradients[0], false);
             });
  return y;
}

// Two half-blocks for each micro-batch. With `handed_on`, the second half-block of each also reads the
// first one's result of the micro-batch before.
Graph split_graph(std::uint32_t parts, bool handed_on = false) {
  GraphBuilder b;
  b.split_batch(parts);
  Value x = b.input("x", {4, 3}, DataType::f32);
  std::vector<Value> y(parts);
  for (std::uint32_t part = 0; part < parts; ++part) {
    b.begin_unit("one", part);
    y[part] = test::scale(b, "y", x, b.parameter("first", {3, 3}, {0.25, 0.1}));
  }
  Value loss;
  for (std::uint32_t part = 0; part < parts; ++part) {
    b.begin_unit("two", part);
    Value from = handed_on && part > 0 ? join(b, "joined", y[part], y[part - 1]) : y[part];
    Value more = test::reduce(b, "loss", test::scale(b, "z", from, b.parameter("second", {3}, {1, 0})));
    loss = part == 0 ? more : b.add_loss(loss, more);
  }
  return b.finish(loss, {});
}

std::vector<std::string> stages(const Graph& graph, const std::vector<OpId>& order) {
  std::vector<std::string> found;
  for (OpId op : order) {
    const Op& of = graph.op(op);
    const std::string stage = of.phase == Phase::update ? "update"
                                                        : std::string(to_string(of.phase)) + ' ' +
                                                              std::to_string(graph.micro_batch_of(of.unit));
    if (found.empty() || found.back() != stage) found.push_back(stage);
  }
  return found;
}

TEST(ExecutionOrder, OneMicroBatchHasTheProgramsOrderAlone) {
  const Graph graph = split_graph(1);
  EXPECT_THAT(possible_orders(graph), ElementsAre(MicroBatchOrder::layer_major));
  EXPECT_EQ(execution_order(graph, MicroBatchOrder::ahead(1)),
            execution_order(graph, MicroBatchOrder::layer_major));
}

TEST(ExecutionOrder, GoesThroughHalfBlocksOrThroughMicroBatches) {
  const Graph graph = split_graph(2);
  EXPECT_THAT(possible_orders(graph), ElementsAre(MicroBatchOrder::layer_major, MicroBatchOrder::ahead(1)));
  EXPECT_THAT(stages(graph, execution_order(graph, MicroBatchOrder::layer_major)),
              ElementsAre("forward 0", "forward 1",                              // the first half-block
                          "forward 0", "backward 0", "forward 1", "backward 1",  // the second
                          "backward 0", "backward 1", "update"));
  EXPECT_THAT(stages(graph, execution_order(graph, MicroBatchOrder::ahead(1))),
              ElementsAre("forward 0", "backward 0", "forward 1", "backward 1", "update"));
}

TEST(ExecutionOrder, GoesSomeForwardsAheadAndThenInTurn) {
  const Graph graph = split_graph(4);
  EXPECT_THAT(stages(graph, execution_order(graph, MicroBatchOrder::ahead(2))),
              ElementsAre("forward 0", "forward 1", "backward 0", "forward 2", "backward 1", "forward 3",
                          "backward 2", "backward 3", "update"));
  EXPECT_THAT(stages(graph, execution_order(graph, MicroBatchOrder::ahead(4))),
              ElementsAre("forward 0", "forward 1", "forward 2", "forward 3", "backward 0", "backward 1",
                          "backward 2", "backward 3", "update"));
}

// Of the two ranges the last one alone goes ahead.
TEST(ExecutionOrder, GoesThroughRangesOneAfterAnother) {
  Graph graph = split_graph(3);
  graph.range_begins = {1};
  check(graph);
  EXPECT_THAT(possible_orders(graph), ElementsAre(MicroBatchOrder::layer_major));
  EXPECT_FALSE(is_far_ahead(graph, MicroBatchOrder::layer_major));
  EXPECT_TRUE(is_far_ahead(graph, MicroBatchOrder::ahead(1)));
  EXPECT_THAT(
      stages(graph, execution_order(graph, MicroBatchOrder::ahead(2))),
      ElementsAre("forward 0", "forward 1", "forward 2",                                            // range 0
                  "forward 0", "forward 1", "backward 0", "forward 2", "backward 1", "backward 2",  // 1
                  "backward 0", "backward 1", "backward 2", "update"));
}

TEST(ExecutionOrder, RefusesForwardsThatThereAreNot) {
  const Graph graph = split_graph(4), handed_on = split_graph(4, true);
  for (std::uint32_t forwards : {1U, 2U, 4U}) {
    EXPECT_TRUE(is_possible(graph, MicroBatchOrder::ahead(forwards)));
    EXPECT_NO_THROW(require_possible(graph, MicroBatchOrder::ahead(forwards)));
  }
  for (std::uint32_t forwards : {0U, 5U}) {
    EXPECT_FALSE(is_possible(graph, MicroBatchOrder::ahead(forwards)));
    EXPECT_THROW(require_possible(graph, MicroBatchOrder::ahead(forwards)), InvalidInput);
  }
  // The first micro-batch's backward needs the second one's, which needs the third one's.
  EXPECT_FALSE(is_possible(handed_on, MicroBatchOrder::ahead(2)));
  EXPECT_FALSE(is_possible(handed_on, MicroBatchOrder::ahead(4)));
  EXPECT_THROW(require_possible(handed_on, MicroBatchOrder::ahead(2)), InvalidInput);
  // A graph of one order has it, where one of the two usual ones is named.
  EXPECT_NO_THROW(require_possible(handed_on, MicroBatchOrder::ahead(1)));
}

// The first micro-batch's backward needs the second one's.
TEST(ExecutionOrder, MicroBatchesThatNeedOneAnotherHaveOneOrder) {
  for (std::uint32_t parts : {2U, 3U})
    EXPECT_THAT(possible_orders(split_graph(parts, true)), ElementsAre(MicroBatchOrder::layer_major));
}

// The second micro-batch reads what the first one's backward overwrites.
TEST(ExecutionOrder, WhatIsOverwrittenHasBeenReadByAll) {
  Graph overwriting = split_graph(2);
  overwriting.ops[test::op_named(overwriting, "micro.0.loss.backward")].may_alias = {{0, 0}};
  Graph reading = split_graph(2);
  const TensorId shared = test::tensor_named(reading, "micro.0.z");
  reading.ops[test::op_named(reading, "micro.1.z")].reads.push_back(shared);
  Graph both = overwriting;
  both.ops[test::op_named(both, "micro.1.z")].reads.push_back(shared);
  EXPECT_THAT(possible_orders(overwriting), ::testing::SizeIs(2));
  EXPECT_THAT(possible_orders(reading), ::testing::SizeIs(2));
  EXPECT_THAT(possible_orders(both), ElementsAre(MicroBatchOrder::layer_major));
  // Then no micro-batch's backward comes before another one's forward.
  EXPECT_THAT(stages(both, execution_order(both, MicroBatchOrder::layer_major)),
              ElementsAre("forward 0", "forward 1", "forward 0", "forward 1", "backward 0", "backward 1",
                          "backward 0", "backward 1", "update"));
}

}  // namespace
}  // namespace stowage
