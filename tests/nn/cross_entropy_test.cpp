#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

TEST(CrossEntropy, GradientsMatchDifferences) {
  test::GradientCheck check;
  Value targets = check.integers("targets", {6}, 9);
  check.run_loss(nn::cross_entropy(check.builder, "loss", check.variable("logits", {6, 9}), targets));
}

TEST(CrossEntropy, IgnoresNegativeTargets) {
  test::GradientCheck check;
  Value targets = check.integers("targets", {6}, 9);
  Value logits = check.variable("logits", {6, 9});
  check.run_loss(nn::cross_entropy(check.builder, "loss", logits, targets), {}, [&](Evaluator& evaluator) {
    test::elements_of<std::int32_t>(evaluator.value(targets.id))[1] = -1;
    test::elements_of<std::int32_t>(evaluator.value(targets.id))[4] = -100;
  });
}

TEST(CrossEntropy, IsTheMeanOverTheTargetsThatCount) {
  GraphBuilder b(DataType::f64);
  Value targets = b.input("targets", {3});
  Value logits = b.parameter("logits", {3, 2}, {});
  Graph graph = b.finish_without_update(nn::cross_entropy(b, "loss", logits, targets));
  Evaluator evaluator(graph, cpu_launch_table(), 1);
  double values[] = {0, std::log(3), 5, 5, 7, 7};
  std::copy_n(values, 6, test::elements_of<double>(evaluator.value(logits.id)));
  std::int32_t given[] = {0, 1, -1};
  std::copy_n(given, 3, test::elements_of<std::int32_t>(evaluator.value(targets.id)));
  evaluator.run(0, 0);
  EXPECT_DOUBLE_EQ(*test::elements_of<double>(evaluator.value(graph.loss)), (std::log(4) + std::log(2)) / 2);
}

TEST(CrossEntropy, EmitsTheContractsOps) {
  GraphBuilder b;
  Value logits = b.parameter("logits", {6, 9}, {});
  Graph graph = b.finish_without_update(nn::cross_entropy(b, "loss", logits, b.input("targets", {6})));
  EXPECT_THAT(test::op_names(graph), ElementsAre("loss", "loss.backward"));
  EXPECT_EQ(graph.ops[0].kernel, "cross_entropy");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].reads), ElementsAre("logits", "targets"));
  EXPECT_EQ(graph.tensor(graph.ops[0].writes[0]),
            (Tensor{"loss", DataType::f64, {}, TensorKind::activation, {}}));
  EXPECT_EQ(graph.tensor(graph.ops[0].writes[1]),
            (Tensor{"loss.log_sum_exp", DataType::f32, {6}, TensorKind::activation, {}}));
  EXPECT_EQ(graph.ops[1].kernel, "cross_entropy_backward");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[1].reads),
              ElementsAre("logits", "targets", "loss.log_sum_exp"));
}

TEST(CrossEntropy, RefusesShapesThatDoNotFit) {
  GraphBuilder b;
  Value logits = b.activation("logits", {6, 9});
  Value targets = b.input("targets", {5});
  test::expect_refused([&] { nn::cross_entropy(b, "loss", logits, targets); },
                       "loss: the targets 'targets' is i32 [5]; give it i32 [6]");
  test::expect_refused([&] { nn::cross_entropy(b, "loss", logits, logits); },
                       "loss: the targets 'logits' is f32");
  test::expect_refused([&] { nn::cross_entropy(b, "loss", targets, targets); }, "loss: the logits 'targets'");
}

TEST(CrossEntropy, GradientsWithPaddingMatchDifferences) {
  test::GradientCheck check;
  Value targets = check.integers("targets", {6}, 7);
  check.run_loss(nn::cross_entropy(check.builder, "loss", check.variable("logits", {6, 9}), targets, 7));
}

TEST(CrossEntropy, NamesItsVocabularyWhereItIsPadded) {
  for (std::int64_t vocabulary : {0, 9, 7}) {
    GraphBuilder b;
    Value logits = b.parameter("logits", {6, 9}, {});
    Graph graph =
        b.finish_without_update(nn::cross_entropy(b, "loss", logits, b.input("targets", {6}), vocabulary));
    const Attributes expected = vocabulary == 7 ? Attributes{{"vocabulary", std::int64_t{7}}} : Attributes{};
    for (const Op& op : graph.ops) EXPECT_EQ(op.attributes, expected);
  }
  GraphBuilder b;
  Value logits = b.activation("logits", {6, 9});
  Value targets = b.input("targets", {6});
  for (std::int64_t vocabulary : {10, -1}) {
    test::expect_refused([&] { nn::cross_entropy(b, "loss", logits, targets, vocabulary); },
                         "is not in logits of 9 columns");
  }
}

}  // namespace
}  // namespace stowage
