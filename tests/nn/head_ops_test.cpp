// The ops of a head in blocks, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Blocks of 4 and 3 rows for 6 tokens: the last row is padding.
struct HeadOps {
  GraphBuilder b;
  Value tokens, targets, table;
  Value x;
  nn::TableBlock blocks[2];

  explicit HeadOps(DataType type = DataType::f32)
      : b(type),
        tokens(b.input("tokens", {7})),
        targets(b.input("targets", {7})),
        table(b.parameter("table", {9, 5}, {0, 1})),
        x(nn::embedding(b, "x", tokens, table, {}, 7)),
        blocks{{b.parameter("first", {4, 5}, {0, 1}), 0, 6}, {b.parameter("second", {3, 5}, {0, 1}), 4, 6}} {}

  Value statistics(std::size_t block, Value before) {
    return nn::head_statistics(b, "head." + std::to_string(block), x, blocks[block], targets, before);
  }
  Graph graph() {
    const Value first = statistics(0, {});
    return b.finish_without_update(nn::head_loss(b, "loss", statistics(1, first), targets));
  }
};

TEST(Head, EmitsTheContractsOps) {
  const Graph graph = HeadOps(DataType::bf16).graph();
  EXPECT_THAT(test::op_names(graph), ElementsAre("x", "head.0", "head.1", "loss", "loss.backward",
                                                 "head.1.backward", "head.0.backward", "x.backward"));
  const auto reads = [&](OpId op) { return test::tensor_names(graph, graph.ops[op].reads); };
  const auto writes = [&](OpId op) { return test::tensor_names(graph, graph.ops[op].writes); };
  EXPECT_EQ(graph.ops[2].kernel, "head_statistics");
  EXPECT_EQ(graph.ops[2].attributes,
            (Attributes{{"first_row", std::int64_t{4}}, {"vocabulary", std::int64_t{6}}}));
  EXPECT_THAT(reads(1), ElementsAre("x", "first", "targets"));
  EXPECT_THAT(reads(2), ElementsAre("x", "second", "targets", "head.0"));
  EXPECT_THAT(writes(2), ElementsAre("head.1", "head.1.logits"));
  EXPECT_EQ(graph.tensor(graph.ops[2].writes[0]),
            (Tensor{"head.1", DataType::f32, {3, 7}, TensorKind::activation, {}}));
  EXPECT_EQ(graph.tensor(graph.ops[2].writes[1]).bytes(), Bytes{44});  // 21 logits, in whole words
  EXPECT_EQ(graph.ops[2].cost.flops, 2.0 * 7 * 5 * 3 + 4.0 * 7 * 3);
  EXPECT_THAT(graph.ops[1].may_alias, IsEmpty());
  EXPECT_THAT(graph.ops[2].may_alias, ElementsAre(Alias{0, 3}));
  EXPECT_EQ(graph.ops[3].kernel, "head_loss");
  EXPECT_THAT(reads(3), ElementsAre("head.1", "targets"));
  EXPECT_EQ(graph.ops[4].kernel, "head_loss_backward");
  EXPECT_THAT(reads(4), ElementsAre("head.1", "targets"));
  EXPECT_THAT(writes(4), ElementsAre("head.1.grad"));
  EXPECT_EQ(graph.ops[5].kernel, "head_backward");
  EXPECT_EQ(graph.ops[5].attributes, graph.ops[2].attributes);
  EXPECT_THAT(reads(5), ElementsAre("x", "second", "targets", "head.1.grad"));
  EXPECT_THAT(writes(5), ElementsAre("x.grad", "second.grad", "head.1.backward.logits"));
  EXPECT_THAT(reads(6), ElementsAre("x", "first", "targets", "head.1.grad", "x.grad"));
  EXPECT_THAT(writes(6), ElementsAre("x.grad.1", "first.grad", "head.0.backward.logits"));
  EXPECT_EQ(graph.ops[6].cost.flops, 3 * 2.0 * 7 * 5 * 4 + 4.0 * 7 * 4);
  EXPECT_THAT(graph.ops[5].may_alias, IsEmpty());
  EXPECT_THAT(graph.ops[6].may_alias, ElementsAre(Alias{0, 4}));
}

// y's gradient is the one of x and of the bias, too: the first block's op must not write over it.
TEST(Head, WritesOverNoGradientThatOthersRead) {
  HeadOps of;
  const Value x = of.x, first = of.statistics(0, {});
  of.x = nn::add(of.b, "y", x, of.b.parameter("bias", {7, 5}, {}));
  const Graph graph =
      of.b.finish_without_update(nn::head_loss(of.b, "loss", of.statistics(1, first), of.targets));
  const Op& op = graph.op(test::op_named(graph, "head.0.backward"));
  EXPECT_THAT(test::tensor_names(graph, op.reads),
              ElementsAre("x", "first", "targets", "head.1.grad", "y.grad"));
  EXPECT_THAT(op.may_alias, IsEmpty());
}

TEST(Head, ReadsTheTargetsOfItsMicroBatch) {
  GraphBuilder b;
  b.split_batch(2);
  const Value tokens = b.input("tokens", {14}), targets = b.input("targets", {14});
  const Value table = b.parameter("table", {6, 5}, {});
  Value loss;
  for (std::uint32_t part = 0; part < 2; ++part) {
    b.begin_unit("all", part);
    const Value x = nn::embedding_rows(b, "x", tokens, {table, 0, 6}, {});
    const Value statistics = nn::head_statistics(b, "head", x, {table, 0, 6}, targets, {});
    loss = b.sum_loss(nn::head_loss(b, "loss", statistics, targets));
  }
  const Graph graph = b.finish_without_update(loss);
  for (const std::string name : {"x", "head", "loss"}) {
    for (const std::string backward : {"", ".backward"}) {
      const Attributes& first = graph.op(test::op_named(graph, "micro.0." + name + backward)).attributes;
      EXPECT_FALSE(first.contains("first_token")) << name << backward;
      const Attributes& second = graph.op(test::op_named(graph, "micro.1." + name + backward)).attributes;
      EXPECT_EQ(second.at("first_token"), Attribute(std::int64_t{7})) << name << backward;
    }
  }
}

TEST(Head, RefusesShapesThatDoNotFit) {
  HeadOps of;
  const auto refuse = [&](Value x, const nn::TableBlock& block, Value targets, Value before,
                          const std::string& words) {
    test::expect_refused([&] { nn::head_statistics(of.b, "head", x, block, targets, before); },
                         "head: " + words);
  };
  const Value wide = of.b.parameter("wide", {4, 6}, {});
  const Value others = of.b.input("others", {8});
  const Value rows = of.blocks[0].rows;
  refuse(of.targets, of.blocks[0], of.targets, {}, "the input 'targets' is i32 [7]; give it f32 [any, any]");
  refuse(of.x, {wide, 0, 6}, of.targets, {}, "the block 'wide' is f32 [4, 6]; give it f32 [any, 5]");
  refuse(of.x, {{}, 0, 6}, of.targets, {}, "the block is missing");
  for (const auto& [first, tokens] : {std::pair{6, 6}, {7, 6}, {-1, 6}, {0, 0}, {0, -1}})
    refuse(of.x, {rows, first, tokens}, of.targets, {},
           "a block from row " + std::to_string(first) + " on is in no table of " + std::to_string(tokens) +
               " tokens");
  refuse(of.x, of.blocks[0], others, {}, "the targets 'others' is i32 [8]; give it i32 [7]");
  refuse(of.x, of.blocks[1], of.targets, of.x, "the statistics before 'x' is f32 [7, 5]; give it f32 [3, 7]");
  const Value given = of.b.input("given", {7, 5}, DataType::f32);
  refuse(given, of.blocks[0], of.targets, {}, "its backward writes the gradients of both inputs, but one");

  test::expect_refused([&] { nn::head_loss(of.b, "loss", of.x, of.targets); },
                       "loss: the statistics 'x' is f32 [7, 5]; give it f32 [3, any]");
  test::expect_refused([&] { nn::head_loss(of.b, "loss", of.statistics(0, {}), others); },
                       "loss: the targets 'others' is i32 [8]; give it i32 [7]");
}

TEST(Head, ItsLossIsTheLossItself) {
  HeadOps of(DataType::f64);
  const Value loss = nn::head_loss(of.b, "mean", of.statistics(0, {}), of.targets);
  const Value weighted = test::weighted_sum(of.b, loss);
  test::expect_refused([&] { of.b.finish_without_update(weighted); },
                       "mean: its gradient is taken as 1; make it the loss itself");
}

// Runs the ops after `change` has changed the graph, with `target` among the targets.
std::string complaint_of_head(const std::function<void(Graph&)>& change, std::int32_t target = 0) {
  HeadOps of;
  Graph graph = of.graph();
  change(graph);
  Evaluator evaluator(graph, cpu_launch_table(), 3);
  test::elements_of<std::int32_t>(evaluator.value(of.targets.id))[3] = target;
  try {
    evaluator.run(0, 0);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

TEST(Head, RefusesATargetOutsideTheVocabulary) {
  EXPECT_EQ(complaint_of_head([](Graph&) {}, 5), "");
  EXPECT_EQ(complaint_of_head([](Graph&) {}, -7), "");
  EXPECT_THAT(complaint_of_head([](Graph&) {}, 6),
              testing::HasSubstr("target 6 at position 3 is outside the vocabulary of 6"));
}

TEST(Head, KernelsRefuseWhatIsNotAsTheContractSays) {
  for (const OpId op : {1U, 6U}) {
    const std::string name = op == 1 ? "op 'head.0' (kernel 'head_statistics') "
                                     : "op 'head.0.backward' (kernel 'head_backward') ";
    const auto set = [&](const char* attribute, std::int64_t value) {
      return complaint_of_head([&](Graph& graph) { graph.ops[op].attributes[attribute] = value; });
    };
    EXPECT_THAT(set("first_row", 6), testing::HasSubstr(name + "has a block that begins behind"));
    EXPECT_THAT(set("first_row", -1), testing::HasSubstr(name + "has a negative attribute 'first_row'"));
    EXPECT_THAT(set("vocabulary", 0), testing::HasSubstr(name + "needs a positive attribute 'vocabulary'"));
    EXPECT_THAT(set("first_token", 1), testing::HasSubstr(name + "takes more tokens than the batch has"));
    const auto shrink = [&](Graph& graph) { graph.tensors[graph.ops[op].writes.back()].shape = {7}; };
    EXPECT_THAT(complaint_of_head(shrink), testing::HasSubstr(name + "has too small a workspace"));
  }
  const auto turned = [](OpId op, std::size_t read) {
    return complaint_of_head([&](Graph& graph) {
      std::vector<std::int64_t>& shape = graph.tensors[graph.ops[op].reads[read]].shape;
      std::swap(shape.front(), shape.back());
    });
  };
  EXPECT_THAT(turned(1, 1),
              testing::HasSubstr("op 'head.0' (kernel 'head_statistics') needs a block as wide"));
  for (const OpId op : {3U, 4U})
    EXPECT_THAT(turned(op, 0), testing::HasSubstr("needs three statistics of each token"));
}

}  // namespace
}  // namespace stowage
