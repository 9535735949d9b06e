// BERTs whose MLPs work on a part of the tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "src/models/require_valid.h"
#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

constexpr std::int32_t tokens_known = 11;

ModelConfig keeping(double share, bool pretraining = true) {
  return {.layers = 2,
          .width = 8,
          .heads = 2,
          .vocabulary = tokens_known,
          .sequence = 6,
          .batch = 2,
          .head_tokens = 5,
          .pretraining = pretraining,
          .keep_tokens = share};
}

Graph keeping_graph(const ModelConfig& config) {
  GraphBuilder builder;
  const Value loss = bert(builder, config).loss;
  return builder.finish(loss, {});
}

std::int64_t kept(double share, std::int64_t sequence) {
  ModelConfig config = keeping(share);
  config.sequence = sequence;
  return kept_tokens(config);
}

TEST(KeepTokens, RoundsUpButForWhatIsAWholeNumber) {
  EXPECT_EQ(kept(0.5, 512), 256);
  EXPECT_EQ(kept(0.1, 10), 1);
  EXPECT_GT(0.07 * 100, 7);
  EXPECT_EQ(kept(0.07, 100), 7);
  EXPECT_EQ(kept(0.29, 100), 29);
  EXPECT_EQ(kept(1.0 / 3, 9), 3);
  EXPECT_EQ(kept(0.5, 7), 4);
  EXPECT_EQ(kept(0.500001, 512), 257);
  EXPECT_EQ(kept(1e-300, 512), 1);
  EXPECT_EQ(kept(0.999, 512), 512);
  EXPECT_EQ(kept(1, std::int64_t{1} << 24), std::int64_t{1} << 24);
}

TEST(KeepTokens, OfAllTokensIsTheUsualGraph) {
  ModelConfig config = keeping(1);
  config.dropout = 0.1;
  const Graph usual = keeping_graph(config);
  config.keep_tokens = 0.99;  // of six tokens all
  EXPECT_EQ(keeping_graph(config), usual);
  for (const Op& op : usual.ops) EXPECT_EQ(op.kernel.find("rows"), std::string::npos) << op.name;
}

std::vector<std::string> kernels_of(const Graph& graph, Phase phase, std::uint32_t unit) {
  std::vector<std::string> kernels;
  for (const Op& op : graph.ops)
    if (op.phase == phase && op.unit == unit) kernels.push_back(op.kernel);
  return kernels;
}

TEST(KeepTokens, ChoosesInAttentionAndPassesTheOthersBy) {
  ModelConfig config = keeping(0.5);
  config.dropout = 0.1;
  const Graph graph = keeping_graph(config);
  EXPECT_THAT(kernels_of(graph, Phase::forward, 1),
              ElementsAre("linear", "attention", "attention_scores", "top_tokens", "linear", "add"));
  EXPECT_THAT(kernels_of(graph, Phase::forward, 2),
              ElementsAre("layer_norm", "take_rows", "linear_gelu", "linear", "dropout", "add_rows"));
  const Op& chosen = graph.op(test::op_named(graph, "layer.0.attention.kept"));
  EXPECT_THAT(test::tensor_names(graph, chosen.reads), ElementsAre("layer.0.attention.scores", "seen"));
  const Op& taken = graph.op(test::op_named(graph, "layer.0.mlp.kept"));
  EXPECT_THAT(test::tensor_names(graph, taken.reads),
              ElementsAre("layer.0.attention.norm", "layer.0.attention.kept"));
  EXPECT_EQ(graph.tensor(test::tensor_named(graph, "layer.1.mlp.up")).shape,
            (std::vector<std::int64_t>{2 * 3, 4 * 8}));
  EXPECT_EQ(graph.tensor(test::tensor_named(graph, "layer.1.mlp.residual")).shape,
            (std::vector<std::int64_t>{2 * 6, 8}));
}

// Flops of the products, and bytes of the activations behind the norm and in front of the sum.
TEST(KeepTokens, OfAHalfHalvesTheMlps) {
  const auto products = [](const Graph& graph, Phase phase) {
    double flops = 0;
    for (const Op& op : graph.ops)
      if (op.phase == phase && graph.unit_names[op.unit].ends_with("mlp") && op.kernel.starts_with("linear"))
        flops += op.cost.flops;
    return flops;
  };
  const auto bytes = [](const Graph& graph) {
    Bytes sum = 0;
    for (const Tensor& tensor : graph.tensors)
      for (const char* name : {"mlp.up", "mlp.up.linear", "mlp.down"})
        if (tensor.name.ends_with(name)) sum += tensor.bytes();
    return sum;
  };
  const Graph all = keeping_graph(keeping(1)), half = keeping_graph(keeping(0.5));
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    EXPECT_GT(products(all, phase), 0);
    EXPECT_EQ(2 * products(half, phase), products(all, phase));
  }
  EXPECT_EQ(2 * bytes(half), bytes(all));
}

// An evaluator with inputs of any kind; padding in the middle and at the end.
struct Filled {
  Graph graph;
  Evaluator evaluator;

  Filled(const BuiltModel& model, Graph of) : graph(std::move(of)), evaluator(graph, cpu_launch_table(), 5) {
    const auto samples = static_cast<int>(graph.tensor(model.tokens.id).elements()) / 6;
    test::fill_tokens(evaluator, model.tokens.id, tokens_known, 1);
    test::fill_tokens(evaluator, model.targets.id, tokens_known, 2);
    test::elements_of<std::int32_t>(evaluator.value(model.targets.id))[3] = -1;
    if (!model.seen) return;
    test::fill_tokens(evaluator, model.token_types.id, 2, 3);
    test::fill_tokens(evaluator, model.next_sentence.id, 2, 4);
    auto* seen = test::elements_of<std::int32_t>(evaluator.value(model.seen.id));
    for (int i = 0; i < 6 * samples; ++i) seen[i] = i % 6 == i / 6 + 1 || i % 6 == 5 ? 0 : 1;
  }
  // Draws of deviation 0.3 instead of 0.02 and of 0 for biases, so that every part matters.
  std::vector<std::pair<TensorId, TensorId>> draw(const GraphBuilder& builder) {
    std::vector<std::pair<TensorId, TensorId>> gradients;
    for (TensorId id = 0; id < graph.tensors.size(); ++id) {
      if (graph.tensor(id).kind != TensorKind::parameter) continue;
      Tensor wide = graph.tensor(id);
      wide.initializer.standard_deviation = 0.3;
      initialize(wide, 5, evaluator.value(id));
      gradients.emplace_back(id, builder.gradient_of({id}));
    }
    return gradients;
  }
  std::vector<std::int32_t> rows(const std::string& name) {
    const TensorId id = test::tensor_named(graph, name);
    const auto* values = test::elements_of<std::int32_t>(evaluator.value(id));
    return {values, values + graph.tensor(id).elements()};
  }
};

// The steps are so small that no choice changes.
TEST(KeepTokens, GradientsMatchDifferences) {
  for (const bool pretraining : {false, true}) {
    ModelConfig config = keeping(0.5, pretraining);
    config.dropout = 0.2;
    GraphBuilder builder(DataType::f64);
    const BuiltModel model = bert(builder, config);
    Filled run(model, builder.finish_without_update(model.loss));
    const auto gradients = run.draw(builder);
    test::expect_gradients_match(run.evaluator, gradients, {.step = 1e-4, .tolerance = 1e-5, .most = 24});
  }
}

// Four tokens of each sample are seen.
TEST(KeepTokens, KeepsSeenTokensFirst) {
  GraphBuilder builder(DataType::f64);
  const BuiltModel model = bert(builder, keeping(4.0 / 6));
  Filled run(model, builder.finish_without_update(model.loss));
  run.draw(builder);
  run.evaluator.run(0, 0);
  for (const char* name : {"layer.0.attention.kept", "layer.1.attention.kept"})
    EXPECT_THAT(run.rows(name), ElementsAre(0, 2, 3, 4, 6, 7, 9, 10));
}

TEST(KeepTokens, KeepsTheHighestScores) {
  GraphBuilder builder(DataType::f64);
  const BuiltModel model = bert(builder, keeping(0.5, false));
  Filled run(model, builder.finish_without_update(model.loss));
  run.draw(builder);
  run.evaluator.run(0, 0);
  const TensorId scores = test::tensor_named(run.graph, "layer.0.attention.scores");
  const auto* score = test::elements_of<double>(run.evaluator.value(scores));
  const std::vector<std::int32_t> rows = run.rows("layer.0.attention.kept");
  for (std::int32_t n = 0; n < 12; ++n) {
    const auto higher = std::count_if(score + n / 6 * 6, score + n / 6 * 6 + 6,
                                      [&](double other) { return other > score[n]; });
    EXPECT_EQ(std::count(rows.begin(), rows.end(), n), higher < 3 ? 1 : 0) << n;
  }
}

// As without dropout in training.
TEST(KeepTokens, EvaluationKeepsAsMany) {
  double losses[2];
  for (const bool trains : {false, true}) {
    GraphBuilder builder(DataType::f32,
                         trains ? GraphBuilder::Trained::as_made : GraphBuilder::Trained::none);
    ModelConfig config = keeping(0.5);
    config.head_tokens = 0;
    const BuiltModel model = bert(builder, config);
    Filled run(model, builder.finish(model.loss, {}));
    run.evaluator.run(0, 0);
    EXPECT_EQ(run.rows("layer.1.attention.kept").size(), 6U);
    losses[trains ? 1 : 0] = *test::elements_of<double>(run.evaluator.value(run.graph.loss));
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(KeepTokens, IsAShareAndBertsAlone) {
  const auto refused = [](const ModelFamily& family, double share, const std::string& words) {
    test::expect_refused(
        [&] {
          GraphBuilder builder;
          family.build(builder, keeping(share, false));
        },
        words);
  };
  for (const double share : {0.0, -0.5, 1.5})
    refused(bert_family, share, "is outside (0, 1]; give a share of the tokens");
  refused(bert_family, std::numeric_limits<double>::quiet_NaN(), "bert: keep_tokens nan is outside (0, 1]");
  for (const ModelFamily* family : model_families())
    if (family != &bert_family)
      refused(*family, 0.5,
              "keep_tokens is 0.5, and a token's score comes from later tokens, so the loss would know the "
              "future; give 1");
}

}  // namespace
}  // namespace stowage
