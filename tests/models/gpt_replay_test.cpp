// An op writes the same bits whenever it runs on the same inputs, also in place where it may.
#include <gtest/gtest.h>

#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "tests/support/finite_difference.h"

namespace stowage {
namespace {

constexpr std::uint64_t seed = 5;
constexpr std::uint64_t step = 3;

struct FinishedStep {
  LaunchTable table = cpu_launch_table();
  Gpt model;
  Graph graph;
  Evaluator evaluator;

  explicit FinishedStep(DataType type) : FinishedStep(GraphBuilder(type)) {}
  explicit FinishedStep(GraphBuilder builder)
      : model(gpt(builder, {.layers = 2,
                            .width = 24,
                            .heads = 3,
                            .vocabulary = 31,
                            .sequence = 10,
                            .batch = 2,
                            .dropout = 0.2})),
        graph(builder.finish(model.loss, {})),
        evaluator(graph, table, seed) {
    test::fill_tokens(evaluator, model.tokens.id, 31, 1);
    test::fill_tokens(evaluator, model.targets.id, 31, 2);
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

class GptReplay : public testing::TestWithParam<DataType> {};

TEST_P(GptReplay, EveryForwardAndBackwardOpWritesTheSameBitsAgain) {
  FinishedStep run(GetParam());
  for (const Op& op : run.graph.ops) {
    if (op.phase == Phase::update) continue;
    auto outputs = run.again(op, {});
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i], run.evaluator.value(op.writes[i])) << op.name << ", output " << i;
    }
  }
}

TEST_P(GptReplay, EveryOpWritesTheSameBitsInPlace) {
  FinishedStep run(GetParam());
  int in_place = 0;
  for (const Op& op : run.graph.ops) {
    if (op.may_alias.empty()) continue;
    ++in_place;
    auto outputs = run.again(op, op.may_alias);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i], run.evaluator.value(op.writes[i])) << op.name << ", output " << i;
    }
  }
  // Each half-block's norm and the sum at its input, each GELU, the last norm, the tied table's sum and
  // the embedding's dropout.
  EXPECT_EQ(in_place, 4 * 2 + 2 + 1 + 1 + 1);
}

INSTANTIATE_TEST_SUITE_P(Types, GptReplay, testing::Values(DataType::f32, DataType::f64),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace stowage
