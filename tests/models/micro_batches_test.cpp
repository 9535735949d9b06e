// A batch in micro-batches: the same loss and gradients as the whole batch's, in the order that graph.h says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

constexpr std::int32_t vocabulary = 13;
constexpr std::int64_t batch = 4, sequence = 6;

ModelConfig small(std::int64_t micro_batches, double dropout, std::int64_t head_tokens) {
  ModelConfig config;
  config.layers = 2;
  config.width = 8;
  config.heads = 2;
  config.vocabulary = vocabulary;
  config.sequence = sequence;
  config.batch = batch;
  config.micro_batches = micro_batches;
  config.dropout = dropout;
  config.head_tokens = head_tokens;
  return config;
}

// Documents, segments, padding that each sample has in another place, and sentences of which one does not
// count.
void fill_more(Evaluator& evaluator, const BuiltModel& model) {
  if (model.begins) {
    auto* begins = test::elements_of<std::int32_t>(evaluator.value(model.begins.id));
    for (int i = 0; i < batch * sequence; ++i) begins[i] = i % sequence < 2 ? 0 : 2;
  }
  if (!model.seen) return;
  test::fill_tokens(evaluator, model.token_types.id, 2, 3);
  auto* seen = test::elements_of<std::int32_t>(evaluator.value(model.seen.id));
  for (int i = 0; i < batch * sequence; ++i) seen[i] = i % sequence == i / sequence ? 0 : 1;
  auto* next = test::elements_of<std::int32_t>(evaluator.value(model.next_sentence.id));
  for (int i = 0; i < batch; ++i) next[i] = i == 0 ? -1 : i % 2;
}

struct Gradients {
  double loss = 0;
  std::map<std::string, std::vector<double>> of;  // by parameter
};

// Targets count in an uneven part of the samples, as BERT's masked tokens do.
Gradients gradients_of(const ModelFamily& family, const ModelConfig& config, std::uint64_t step = 3) {
  GraphBuilder builder(DataType::f64);
  const BuiltModel model = family.build(builder, config);
  const Graph graph = builder.finish_without_update(model.loss);
  EXPECT_EQ(graph.micro_batches, config.micro_batches);
  Evaluator evaluator(graph, cpu_launch_table(), 5);
  test::fill_tokens(evaluator, model.tokens.id, vocabulary, 1);
  test::fill_tokens(evaluator, model.targets.id, vocabulary, 2);
  auto* targets = test::elements_of<std::int32_t>(evaluator.value(model.targets.id));
  for (std::int64_t i = 0; i < config.batch * config.sequence; ++i)
    if (i % 3 == 0 || i / config.sequence == 1) targets[i] = -1;
  fill_more(evaluator, model);
  evaluator.run(step, 0);
  Gradients result;
  result.loss = *test::elements_of<double>(evaluator.value(graph.loss));
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    const TensorId gradient = tensor.kind == TensorKind::parameter ? builder.gradient_of({id}) : no_id;
    if (gradient == no_id) continue;
    const auto* values = test::elements_of<double>(evaluator.value(gradient));
    result.of[tensor.name] = {values, values + tensor.elements()};
  }
  return result;
}

// What differs is the order of sums of some hundred terms, each computed with a relative error of some
// 1e-16, whose absolute values are of the size of the tensor's largest elements.
void expect_equal_up_to_rounding(const Gradients& split, const Gradients& whole) {
  EXPECT_NEAR(split.loss, whole.loss, 1e-14 * whole.loss);
  ASSERT_EQ(split.of.size(), whole.of.size());
  for (const auto& [name, expected] : whole.of) {
    double largest = 0;
    for (double value : expected) largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 0) << name;
    const std::vector<double>& found = split.of.at(name);
    ASSERT_EQ(found.size(), expected.size()) << name;
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 1e-13 * largest) << name << ' ' << i;
  }
}

TEST(MicroBatches, GptHasTheLossAndGradientsOfTheWholeBatch) {
  for (std::int64_t head_tokens : {0, 3, 2048}) {
    for (double dropout : {0.0, 0.25}) {
      const Gradients whole = gradients_of(gpt_family, small(1, dropout, head_tokens));
      for (std::int64_t parts : {2, 4}) {
        SCOPED_TRACE(testing::Message() << head_tokens << ' ' << dropout << ' ' << parts);
        expect_equal_up_to_rounding(gradients_of(gpt_family, small(parts, dropout, head_tokens)), whole);
      }
    }
  }
}

TEST(MicroBatches, LlamaHasTheLossAndGradientsOfTheWholeBatch) {
  ModelConfig config = small(1, 0.25, 5);
  config.key_heads = 1;
  config.head_norms = config.packed = true;
  const Gradients whole = gradients_of(llama_family, config);
  for (std::int64_t parts : {2, 4}) {
    config.micro_batches = parts;
    expect_equal_up_to_rounding(gradients_of(llama_family, config), whole);
  }
}

TEST(MicroBatches, BertHasTheLossAndGradientsOfTheWholeBatch) {
  for (double dropout : {0.0, 0.25}) {
    const Gradients whole = gradients_of(bert_family, small(1, dropout, 5));
    for (std::int64_t parts : {2, 4})
      expect_equal_up_to_rounding(gradients_of(bert_family, small(parts, dropout, 5)), whole);
  }
}

TEST(MicroBatches, BertInPretrainingHasTheLossAndGradientsOfTheWholeBatch) {
  for (std::int64_t head_tokens : {0, 5}) {
    auto config = small(1, 0.25, head_tokens);
    config.pretraining = true;
    config.padded_vocabulary = 16;
    const Gradients whole = gradients_of(bert_family, config);
    for (std::int64_t parts : {2, 4}) {
      config.micro_batches = parts;
      expect_equal_up_to_rounding(gradients_of(bert_family, config), whole);
    }
  }
}

TEST(MicroBatches, BertThatKeepsTokensHasTheLossAndGradientsOfTheWholeBatch) {
  auto config = small(1, 0.25, 5);
  config.pretraining = true;
  config.keep_tokens = 0.5;
  const Gradients whole = gradients_of(bert_family, config);
  for (std::int64_t parts : {2, 4}) {
    config.micro_batches = parts;
    expect_equal_up_to_rounding(gradients_of(bert_family, config), whole);
  }
}

// Random numbers come in groups of four, and these parts draw for no multiple of four elements: attention in
// all, and what else drops in the second.
TEST(MicroBatches, DropTheSameElementsWhereverTheBatchIsCut) {
  struct Sizes {
    std::int64_t width, heads, sequence;
  };
  for (const auto& [width, heads, length] : {Sizes{40, 5, 37}, Sizes{5, 1, 7}, Sizes{6, 2, 5}}) {
    auto config = small(1, 0.1, 2048);
    config.layers = 1;
    config.width = width;
    config.heads = heads;
    config.sequence = length;
    const Gradients whole = gradients_of(gpt_family, config);
    for (std::int64_t parts : {2, 4}) {
      SCOPED_TRACE(testing::Message() << width << ' ' << parts);
      config.micro_batches = parts;
      expect_equal_up_to_rounding(gradients_of(gpt_family, config), whole);
    }
  }
}

// So that the tests above compare masks at all.
TEST(MicroBatches, DropoutDrawsAnewInEveryStep) {
  const auto config = small(2, 0.25, 3);
  EXPECT_NE(gradients_of(gpt_family, config, 3).loss, gradients_of(gpt_family, config, 4).loss);
}

TEST(MicroBatches, EachDropsItsOwnElements) {
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, small(2, 0.25, 3));
  const Graph graph = builder.finish(model.loss, {});
  const auto attribute = [&](const char* op, const char* name) {
    return graph.op(test::op_named(graph, op)).attributes.at(name);
  };
  EXPECT_EQ(attribute("micro.0.h.0.attn", "key"), attribute("micro.1.h.0.attn", "key"));
  EXPECT_FALSE(graph.op(test::op_named(graph, "micro.0.h.0.attn")).attributes.contains("first_element"));
  // 2 samples, 2 heads, 6 x 6 probabilities.
  EXPECT_EQ(attribute("micro.1.h.0.attn", "first_element"), Attribute(std::int64_t{144}));
  EXPECT_EQ(attribute("micro.1.h.0.attn.residual", "first_element"), Attribute(std::int64_t{96}));
}

Graph gpt_graph(std::int64_t parts, std::int64_t head_tokens = 3) {
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, small(parts, 0, head_tokens));
  return builder.finish(model.loss, {});
}

TEST(MicroBatches, GoThroughEachHalfBlockTogether) {
  for (std::int64_t head_tokens : {0, 3}) {
    const Graph graph = gpt_graph(2, head_tokens);
    for (Phase phase : {Phase::forward, Phase::backward}) {
      std::vector<std::string> units;
      for (const Op& op : graph.ops) {
        if (op.phase != phase) continue;
        const std::string& name = graph.unit_names[op.unit];
        if (units.empty() || units.back() != name) units.push_back(name);
      }
      ASSERT_EQ(units.size(), 12U);
      if (phase == Phase::backward) {
        EXPECT_THAT(std::vector(units.begin(), units.begin() + 4),
                    ElementsAre("micro.0.head", "micro.1.head", "micro.0.h.1.mlp", "micro.1.h.1.mlp"));
      } else {
        EXPECT_THAT(std::vector(units.begin(), units.begin() + 4),
                    ElementsAre("micro.0.embedding", "micro.1.embedding", "micro.0.h.0.attention",
                                "micro.1.h.0.attention"));
      }
    }
  }
}

std::set<std::string> named(const Graph& graph, TensorKind kind) {
  std::set<std::string> names;
  for (const Tensor& tensor : graph.tensors)
    if (tensor.kind == kind) names.insert(tensor.name);
  return names;
}

TEST(MicroBatches, HaveTheParametersAndInputsOfTheWhole) {
  for (TensorKind kind : {TensorKind::parameter, TensorKind::optimizer_state, TensorKind::input})
    EXPECT_EQ(named(gpt_graph(4), kind), named(gpt_graph(1), kind));
}

// The sums over micro-batches of the head, then of the embedding, then both.
TEST(MicroBatches, SumTheTiedTableByUses) {
  const Graph graph = gpt_graph(2);
  std::vector<std::vector<std::string>> sums;
  for (const Op& op : graph.ops) {
    if (op.kernel != "accumulate" || graph.tensor(op.writes[0]).shape != graph.tensor(op.reads[0]).shape)
      continue;
    if (!op.name.starts_with("wte.weight")) continue;
    sums.push_back(test::tensor_names(graph, op.reads));
    EXPECT_THAT(op.may_alias, ElementsAre(Alias{0, 0})) << op.name;
  }
  ASSERT_EQ(sums.size(), 3U);
  EXPECT_THAT(sums[0], ElementsAre("wte.weight.grad", "wte.weight.grad.1"));
  EXPECT_THAT(sums[1], ElementsAre("wte.weight.grad.3", "wte.weight.grad.4"));
  EXPECT_THAT(sums[2], ElementsAre("wte.weight.grad.2", "wte.weight.grad.5"));
}

TEST(MicroBatches, SurviveJson) {
  const Graph graph = gpt_graph(2);
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
  EXPECT_EQ(to_json(gpt_graph(1)).find("micro_batches"), std::string::npos);
}

TEST(MicroBatches, MustDivideTheBatch) {
  for (std::int64_t parts : {3, 8, 0, -1}) {
    GraphBuilder builder;
    test::expect_refused([&] { gpt(builder, small(parts, 0, 3)); }, "micro_batches");
    GraphBuilder other;
    test::expect_refused([&] { bert(other, small(parts, 0, 3)); }, "micro_batches");
  }
}

}  // namespace
}  // namespace stowage
