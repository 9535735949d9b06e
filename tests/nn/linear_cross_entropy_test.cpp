#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

constexpr std::int64_t rows = 7, width = 5, vocabulary = 4;

TEST(LinearCrossEntropy, GradientsMatchDifferences) {
  for (bool transposed : {false, true}) {
    for (std::int64_t chunk : {0, 1, 3, 7, 100}) {
      test::GradientCheck check;
      Value x = check.variable("x", {rows, width});
      Value weight = check.variable("w", transposed ? std::vector<std::int64_t>{vocabulary, width}
                                                    : std::vector<std::int64_t>{width, vocabulary});
      Value targets = check.integers("targets", {rows}, vocabulary);
      check.run_loss(nn::linear_cross_entropy(check.builder, "loss", x, weight, targets,
                                              {.transposed = transposed, .chunk = chunk}));
    }
  }
}

TEST(LinearCrossEntropy, IgnoredTargetsCountForNothing) {
  test::GradientCheck check;
  Value x = check.variable("x", {rows, width});
  Value weight = check.variable("w", {width, vocabulary});
  Value targets = check.integers("targets", {rows}, vocabulary);
  Value loss = nn::linear_cross_entropy(check.builder, "loss", x, weight, targets, {.chunk = 2});
  check.run_loss(loss, {}, [&](Evaluator& evaluator) {
    auto* target = test::elements_of<std::int32_t>(evaluator.value(targets.id));
    target[0] = target[3] = target[6] = -1;
  });
}

// One more layer in front, so that x is an activation.
struct Case {
  Graph graph;
  Value tokens, targets, table;
  TensorId dtable = no_id;

  template <class Head>
  static Case make(DataType type, Head head) {
    GraphBuilder b(type);
    Case made;
    made.tokens = b.input("tokens", {rows});
    made.targets = b.input("targets", {rows});
    made.table = b.parameter("table", {vocabulary, width}, {0, 1});
    Value x = nn::embedding(b, "x", made.tokens, made.table, {}, rows);
    made.graph = b.finish_without_update(head(b, x, made.table, made.targets));
    made.dtable = b.gradient_of(made.table);
    return made;
  }

  std::pair<std::vector<std::byte>, std::vector<std::byte>> loss_and_gradient() const {
    Evaluator evaluator(graph, cpu_launch_table(), 3);
    test::fill_tokens(evaluator, tokens.id, vocabulary, 1);
    test::fill_tokens(evaluator, targets.id, vocabulary, 2);
    evaluator.run(0, 0);
    return {evaluator.value(graph.loss), evaluator.value(dtable)};
  }
};

// The two round the softmax at other places, exp(x - log sum exp) here and exp(x - largest) / sum there: a
// weight differs by a few units, and a gradient is a sum of `rows` of them times numbers below 1.
template <class T>
void expect_near(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  ASSERT_EQ(a.size(), b.size());
  const T bound = 16 * static_cast<T>(rows) * std::numeric_limits<T>::epsilon();
  for (std::size_t i = 0; i < a.size(); i += sizeof(T)) {
    T left, right;
    std::memcpy(&left, a.data() + i, sizeof(T));
    std::memcpy(&right, b.data() + i, sizeof(T));
    EXPECT_NEAR(left, right, bound) << i / sizeof(T);
  }
}

TEST(LinearCrossEntropy, IsItsPartsWhereOneChunkHoldsAll) {
  for (DataType type : {DataType::f32, DataType::f64}) {
    const Case whole = Case::make(type, [](GraphBuilder& b, Value x, Value table, Value targets) {
      return nn::cross_entropy(b, "loss", nn::linear(b, "head", x, table, {}, true), targets);
    });
    const Case fused = Case::make(type, [](GraphBuilder& b, Value x, Value table, Value targets) {
      return nn::linear_cross_entropy(b, "loss", x, table, targets, {.transposed = true});
    });
    const auto [whole_loss, whole_gradient] = whole.loss_and_gradient();
    const auto [fused_loss, fused_gradient] = fused.loss_and_gradient();
    EXPECT_EQ(whole_loss, fused_loss);
    if (type == DataType::f32)
      expect_near<float>(whole_gradient, fused_gradient);
    else
      expect_near<double>(whole_gradient, fused_gradient);
  }
}

TEST(LinearCrossEntropy, IsTheFirstBackwardOpAndWritesTheGradients) {
  const Case fused = Case::make(DataType::f32, [](GraphBuilder& b, Value x, Value table, Value targets) {
    return nn::linear_cross_entropy(b, "loss", x, table, targets, {.transposed = true, .chunk = 3});
  });
  EXPECT_THAT(test::op_names(fused.graph), ElementsAre("x", "loss", "x.backward", "table.grad.2.accumulate"));
  const Op& op = fused.graph.ops[1];
  EXPECT_EQ(op.phase, Phase::backward);
  EXPECT_THAT(test::tensor_names(fused.graph, op.reads), ElementsAre("x", "table", "targets"));
  EXPECT_THAT(test::tensor_names(fused.graph, op.writes),
              ElementsAre("loss", "x.grad", "table.grad", "loss.logits"));
  EXPECT_EQ(fused.graph.tensor(op.writes[3]).bytes(), Bytes{3 * vocabulary * 4});
  EXPECT_EQ(op.cost.flops, 3 * 2.0 * rows * width * vocabulary + 8.0 * rows * vocabulary);
}

TEST(LinearCrossEntropy, SumsTheWeightsGradientInF32WhereChunksAreBf16) {
  const auto workspace = [](std::int64_t chunk) {
    const Case made = Case::make(DataType::bf16, [&](GraphBuilder& b, Value x, Value table, Value targets) {
      return nn::linear_cross_entropy(b, "loss", x, table, targets, {.transposed = true, .chunk = chunk});
    });
    return made.graph.tensor(made.graph.ops[1].writes[3]).bytes();
  };
  EXPECT_EQ(workspace(0), Bytes{2 * rows * vocabulary});
  EXPECT_EQ(workspace(3), Bytes{256 + 4 * vocabulary * width});
}

TEST(LinearCrossEntropy, RefusesWhatItCannotServe) {
  GraphBuilder b;
  Value targets = b.input("targets", {rows});
  Value table = b.parameter("table", {vocabulary, width}, {});
  Value given = b.input("given", {rows, width}, DataType::f32);
  test::expect_refused(
      [&] { nn::linear_cross_entropy(b, "head", given, table, targets, {.transposed = true}); },
      "head: it writes the gradients of its inputs");
  Value x = nn::embedding(b, "x", b.input("tokens", {rows}), table, {}, rows);
  test::expect_refused(
      [&] { nn::linear_cross_entropy(b, "head", x, table, targets, {.transposed = true, .chunk = -1}); },
      "head: the chunk is negative");
  test::expect_refused([&] { nn::linear_cross_entropy(b, "head", x, table, targets); },
                       "head: the weight 'table' is f32 [4, 5]; give it f32 [5, any]");
}

TEST(LinearCrossEntropy, MustComeLast) {
  GraphBuilder b;
  Value targets = b.input("targets", {rows});
  Value table = b.parameter("table", {vocabulary, width}, {});
  Value x = nn::embedding(b, "x", b.input("tokens", {rows}), table, {}, rows);
  Value loss = nn::linear_cross_entropy(b, "loss", x, table, targets, {.transposed = true});
  nn::gelu(b, "late", x, nn::Gelu::tanh);
  test::expect_refused([&] { b.finish_without_update(loss); },
                       "op 'loss' writes gradients too, so its result must be the loss and nothing may come");
}

TEST(LinearCrossEntropy, GradientsWithBiasAndPaddingMatchDifferences) {
  for (std::int64_t chunk : {0, 2}) {
    test::GradientCheck check;
    Value x = check.variable("x", {rows, width});
    Value weight = check.variable("w", {vocabulary, width});
    Value bias = check.variable("bias", {vocabulary});
    Value targets = check.integers("targets", {rows}, vocabulary - 1);
    check.run_loss(nn::linear_cross_entropy(
        check.builder, "loss", x, weight, targets,
        {.transposed = true, .chunk = chunk, .vocabulary = vocabulary - 1, .bias = bias}));
  }
}

}  // namespace
}  // namespace stowage
