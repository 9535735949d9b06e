#include "samples/task/forward_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "samples/task/bert_task.h"
#include "stowage/evaluate.h"

namespace stowage::samples {
namespace {

struct BuiltGpt {
  BuiltModel model;
  Graph graph;
};
BuiltGpt tiny_gpt(std::int64_t batch,
                  ModelConfig config = {
                      .layers = 2, .width = 16, .heads = 2, .sequence = 8, .head_tokens = 0}) {
  config.batch = batch;
  GraphBuilder builder;
  BuiltGpt built;
  built.model = gpt(builder, config);
  built.graph = builder.finish(built.model.loss, AdamW{});
  return built;
}

TEST(WithoutDropout, LeavesNoCodes) {
  ModelConfig config{.layers = 1, .width = 64, .heads = 2, .vocabulary = 16, .sequence = 128, .batch = 4};
  config.code_activations = CodeBits::four;
  const auto encodes = [](const ModelConfig& of) {
    GraphBuilder builder;
    const Graph graph = builder.finish_without_update(gpt(builder, of).loss);
    return std::count_if(graph.ops.begin(), graph.ops.end(),
                         [](const Op& op) { return op.kernel == "encode"; });
  };
  EXPECT_EQ(encodes(config), 2);
  EXPECT_EQ(encodes(without_dropout(config, 4)), 0);
  config.keep_tokens = 0.5;  // this stays, since it changes the model
  EXPECT_EQ(without_dropout(config, 4).keep_tokens, 0.5);
}

TEST(UpTo, KeepsTheForwardPartAndComputesTheSame) {
  const BuiltGpt whole = tiny_gpt(1);
  const SubGraph part = up_to(whole.graph, {whole.model.tokens.id, whole.model.logits.id});
  for (const Op& op : part.graph.ops) {
    EXPECT_EQ(op.phase, Phase::forward);
    EXPECT_NE(op.kernel, "cross_entropy");
  }
  for (const Tensor& tensor : part.graph.tensors) {
    EXPECT_NE(tensor.kind, TensorKind::gradient);
    EXPECT_NE(tensor.kind, TensorKind::optimizer_state);
  }
  // Forward alone, so that the weights stay as they were initialised.
  const SubGraph forward = up_to(whole.graph, {whole.model.loss.id, whole.model.logits.id});
  Evaluator one(part.graph, cpu_launch_table(), 3);
  Evaluator other(forward.graph, cpu_launch_table(), 3);
  one.run(0, 0);
  other.run(0, 0);
  EXPECT_EQ(one.value(part.outputs[1]), other.value(forward.outputs[1]));
  EXPECT_EQ(one.graph().tensor(part.outputs[1]).name, whole.graph.tensor(whole.model.logits.id).name);
}

// Reads initial values, and counts how often.
struct Reader {
  const Graph& graph;
  std::map<std::string, int> reads{};

  ReadParameter read() {
    return [this](const std::string& name) {
      ++reads[name];
      for (const Tensor& tensor : graph.tensors) {
        if (tensor.name != name) continue;
        std::vector<std::byte> value(tensor.bytes());
        initialize(tensor, 7, value);
        return value;
      }
      return std::vector<std::byte>{};
    };
  }
};

TEST(ForwardPass, GivesTheEvaluatorsBitsAndReadsEachParameterOnce) {
  const BuiltGpt whole = tiny_gpt(2);
  const std::vector<std::int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
  const ForwardPass pass(whole.graph, {whole.model.tokens.id}, {whole.model.logits.id});
  Reader reader{whole.graph};
  const auto results = pass.run({tokens}, reader.read());
  ASSERT_EQ(results.size(), 1U);

  const SubGraph part = up_to(whole.graph, {whole.model.tokens.id, whole.model.logits.id});
  Evaluator evaluator(part.graph, cpu_launch_table(), 7);
  std::memcpy(evaluator.value(part.outputs[0]).data(), tokens.data(), tokens.size() * sizeof tokens[0]);
  evaluator.run(0, 0);
  EXPECT_EQ(results[0], evaluator.value(part.outputs[1]));

  std::size_t parameters = 0;
  for (const Tensor& tensor : whole.graph.tensors) parameters += tensor.kind == TensorKind::parameter ? 1 : 0;
  EXPECT_EQ(reader.reads.size(), parameters);
  for (const auto& [name, times] : reader.reads) EXPECT_EQ(times, 1) << name;
}

TEST(WithoutDropout, NoOpDropsAnything) {
  ModelConfig config = {
      .layers = 1, .width = 8, .heads = 1, .sequence = 4, .batch = 4, .micro_batches = 2, .dropout = 0.5};
  config.embedding_dropout = config.attention_dropout = config.residual_dropout = 0.25;
  GraphBuilder gpt_builder, bert_builder;
  const ModelConfig changed = without_dropout(config, 3);
  const BuiltModel model = gpt(gpt_builder, changed);
  EXPECT_EQ(gpt_builder.tensor(model.tokens).shape, (std::vector<std::int64_t>{12}));
  const Graph one = gpt_builder.finish_without_update(model.loss);
  const Graph other = bert_builder.finish_without_update(bert(bert_builder, changed).loss);
  for (const Graph* graph : {&one, &other}) {
    for (const Op& op : graph->ops) {
      EXPECT_EQ(op.kernel.find("dropout"), std::string::npos) << op.name;
      const auto found = op.attributes.find("dropout");
      const bool drops = found != op.attributes.end() && found->second != Attributes::mapped_type(0.0);
      EXPECT_FALSE(drops) << op.name;
    }
  }
}

TEST(SamplesAtOnce, TheirLogitsStaySmall) {
  const ModelConfig small = {.vocabulary = 256, .sequence = 256, .batch = 8};
  EXPECT_EQ(samples_at_once(small, 64), 8);
  EXPECT_EQ(samples_at_once(small, 3), 3);
  const ModelConfig large = {.vocabulary = 50257, .sequence = 1024, .batch = 8, .padded_vocabulary = 50304};
  EXPECT_EQ(samples_at_once(large, 64), 1);
}

TEST(Score, OfLiterals) {
  // Softmax 0.5, 0.25, 0.25; the fourth column is padding, whatever stands there.
  const std::array<float, 12> logits = {std::log(2.0F), 0, 0, 99, 0, 0, std::log(2.0F), 99, 5, 5, 5, 99};
  const std::array<std::int32_t, 3> targets = {0, 1, -1};
  const Score found = score(logits, 3, targets);
  EXPECT_EQ(found.targets, 2U);
  EXPECT_EQ(found.right, 1U);
  EXPECT_NEAR(found.nats, std::log(2.0) + std::log(4.0), 1e-6);
  EXPECT_NEAR(found.mean(), found.nats / 2, 1e-15);
  EXPECT_EQ(found.share_right(), 0.5);
}

// The loss that the graph itself computes.
TEST(Score, IsTheGraphsLoss) {
  BuiltGpt built = tiny_gpt(2);
  const SubGraph part = up_to(built.graph, {built.model.tokens.id, built.model.targets.id,
                                            built.model.logits.id, built.model.loss.id});
  Evaluator evaluator(part.graph, cpu_launch_table(), 3);
  const std::vector<std::int32_t> targets = {1, 2, 3, -1, 5, 6, 7, 8, 9, 10, -1, 12, 13, 14, 15, 255};
  std::memcpy(evaluator.value(part.outputs[1]).data(), targets.data(), targets.size() * sizeof targets[0]);
  evaluator.run(0, 0);
  double loss = 0;
  std::memcpy(&loss, evaluator.value(part.outputs[3]).data(), sizeof loss);
  EXPECT_NEAR(score(floats_of(evaluator.value(part.outputs[2])), 256, targets).mean(), loss, 1e-5);
}

}  // namespace
}  // namespace stowage::samples
