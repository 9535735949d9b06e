// An op writes the same bits whenever it runs on the same inputs, also in place where it may.
#include <gtest/gtest.h>

#include <map>

#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "tests/support/finite_difference.h"

namespace stowage {
namespace {

constexpr std::uint64_t seed = 5;
constexpr std::uint64_t step = 3;

enum class Model : std::uint8_t { gpt, bert, keeping_bert, llama };

Graph build(DataType type, Model model) {
  GraphBuilder builder(type);
  const auto config = [](ModelConfig of) {
    of.layers = 2;
    of.width = 24;
    of.heads = 3;
    of.vocabulary = 31;
    of.sequence = 10;
    of.batch = 2;
    of.dropout = 0.2;
    return of;
  };
  if (model == Model::gpt) return builder.finish(gpt(builder, config({})).loss, {});
  if (model == Model::llama) {
    ModelConfig grouped = config({.key_heads = 1, .inner = 40});
    grouped.head_norms = grouped.attention_bias = true;
    grouped.table_rows = 12;
    return builder.finish(llama(builder, grouped).loss, {});
  }
  ModelConfig pretraining = config({.epsilon = 1e-12});
  pretraining.padded_vocabulary = 32;
  pretraining.pretraining = true;
  if (model == Model::keeping_bert) pretraining.keep_tokens = 0.4;
  return builder.finish(bert(builder, pretraining).loss, {});
}

struct FinishedStep {
  LaunchTable table = cpu_launch_table();
  Graph graph;
  Evaluator evaluator;

  FinishedStep(DataType type, Model model) : graph(build(type, model)), evaluator(graph, table, seed) {
    for (TensorId id = 0; id < graph.tensors.size(); ++id) {
      const Tensor& tensor = graph.tensor(id);
      if (tensor.kind != TensorKind::input) continue;
      test::fill_tokens(evaluator, id, tensor.name == "tokens" || tensor.name == "targets" ? 31 : 2, id);
      if (tensor.name == "seen") test::elements_of<std::int32_t>(evaluator.value(id))[3] = 1;
      if (tensor.name == "seen") test::elements_of<std::int32_t>(evaluator.value(id))[13] = 1;
    }
    evaluator.run(step, 0);
  }

  // Runs `op` once more on copies of its inputs; what it writes starts as garbage, unless it takes
  // the bytes of an input.
  std::vector<std::vector<std::byte>> again(const Op& op, const std::vector<Alias>& aliases) {
    std::vector<std::vector<std::byte>> inputs;
    std::vector<std::vector<std::byte>> outputs;
    std::vector<Operand> reads;
    std::vector<Operand> writes;
    for (TensorId id : op.reads) inputs.push_back(evaluator.value(id));
    for (TensorId id : op.writes) outputs.emplace_back(graph.tensor(id).bytes(), std::byte{0xa5});
    for (std::size_t i = 0; i < inputs.size(); ++i)
      reads.push_back({inputs[i].data(), &graph.tensor(op.reads[i])});
    for (std::size_t i = 0; i < outputs.size(); ++i)
      writes.push_back({outputs[i].data(), &graph.tensor(op.writes[i])});
    for (const Alias& alias : aliases) writes[alias.write].data = inputs[alias.read].data();
    table.find(op)({&op, reads, writes, {step, seed, 0}, nullptr});
    for (const Alias& alias : aliases) outputs[alias.write] = inputs[alias.read];
    return outputs;
  }
};

class Replay : public testing::TestWithParam<std::tuple<DataType, Model>> {
 protected:
  FinishedStep run{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(Replay, EveryForwardAndBackwardOpWritesTheSameBitsAgain) {
  for (const Op& op : run.graph.ops) {
    if (op.phase == Phase::update) continue;
    auto outputs = run.again(op, {});
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i], run.evaluator.value(op.writes[i])) << op.name << ", output " << i;
    }
  }
}

TEST_P(Replay, EveryOpWritesTheSameBitsInPlace) {
  int in_place = 0;
  for (const Op& op : run.graph.ops) {
    if (op.may_alias.empty()) continue;
    ++in_place;
    auto outputs = run.again(op, op.may_alias);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i], run.evaluator.value(op.writes[i])) << op.name << ", output " << i;
    }
  }
  // GPT: each half-block's norm, which adds the trunk's gradient, each GELU, the last norm, the tied table's
  // sum and the embedding's dropout. BERT: the same, the norm being the embedding's; each half-block's sum in
  // front of its norm; and the head's norm, GELU, tanh and the sum where its two branches meet, which is one
  // at the last half-block's end. Llama: each half-block's norm, each turn, each SwiGLU and the sum where its
  // two products meet, the last norm; of three blocks of the table each one's sum, and of the second and
  // third the rows of the embedding, the statistics and the gradient of the head's input. A BERT that keeps a
  // part of the tokens: each MLP's dropout too, which is an op of its own.
  const int gpt = 2 * 2 + 2 + 1 + 1 + 1, bert = gpt + 2 * 2 + 4, llama = 2 * 5 + 1 + 3 + 2 * 3;
  const std::map<Model, int> right = {
      {Model::gpt, gpt}, {Model::bert, bert}, {Model::keeping_bert, bert + 2}, {Model::llama, llama}};
  EXPECT_EQ(in_place, right.at(std::get<1>(GetParam())));
}

std::string name_of(Model model) {
  return model == Model::gpt            ? "gpt"
         : model == Model::bert         ? "bert"
         : model == Model::keeping_bert ? "keeping_bert"
                                        : "llama";
}

INSTANTIATE_TEST_SUITE_P(Models, Replay,
                         testing::Combine(testing::Values(DataType::f32, DataType::bf16, DataType::f64),
                                          testing::Values(Model::gpt, Model::bert, Model::keeping_bert,
                                                          Model::llama)),
                         [](const auto& info) {
                           return name_of(std::get<1>(info.param)) + "_" +
                                  std::string(to_string(std::get<0>(info.param)));
                         });

}  // namespace
}  // namespace stowage
