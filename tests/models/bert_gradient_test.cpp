#include <gtest/gtest.h>

#include "stowage/models.h"
#include "tests/support/finite_difference.h"

namespace stowage {
namespace {

// Draws of deviation 0.3 instead of 0.02 and of 0 for biases, so that every part matters.
void expect_bert_gradients_match(double dropout, bool pretraining = false) {
  GraphBuilder builder(DataType::f64);
  const BuiltModel model = bert(builder, {.layers = 2,
                                          .width = 8,
                                          .heads = 2,
                                          .vocabulary = 11,
                                          .sequence = 6,
                                          .batch = 2,
                                          .dropout = dropout,
                                          .pretraining = pretraining});
  const Graph graph = builder.finish_without_update(model.loss);
  Evaluator evaluator(graph, cpu_launch_table(), 5);
  test::fill_tokens(evaluator, model.tokens.id, 11, 1);
  test::fill_tokens(evaluator, model.targets.id, 11, 2);
  test::elements_of<std::int32_t>(evaluator.value(model.targets.id))[3] = -1;
  if (pretraining) {
    test::fill_tokens(evaluator, model.token_types.id, 2, 3);
    test::fill_tokens(evaluator, model.next_sentence.id, 2, 4);
    auto* seen = test::elements_of<std::int32_t>(evaluator.value(model.seen.id));
    for (int i = 0; i < 12; ++i) seen[i] = i == 2 || i > 9 ? 0 : 1;
  }
  std::vector<std::pair<TensorId, TensorId>> gradients;
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).kind != TensorKind::parameter) continue;
    Tensor wide = graph.tensor(id);
    wide.initializer.standard_deviation = 0.3;
    initialize(wide, 5, evaluator.value(id));
    gradients.emplace_back(id, builder.gradient_of({id}));
  }
  ASSERT_EQ(gradients.size(), 2U * 12 + (pretraining ? 14 : 4));
  test::expect_gradients_match(evaluator, gradients, {.step = 1e-3, .tolerance = 1e-6, .most = 48});
}

TEST(BertGradient, OfTwoLayersMatchesDifferences) { expect_bert_gradients_match(0); }

TEST(BertGradient, OfTwoLayersWithDropoutMatchesDifferences) { expect_bert_gradients_match(0.2); }

TEST(BertGradient, OfPretrainingMatchesDifferences) { expect_bert_gradients_match(0.2, true); }

}  // namespace
}  // namespace stowage
