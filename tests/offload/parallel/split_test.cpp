#include "offload/parallel/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "offload/parallel/layer_costs.h"
#include "offload/parallel/stage.h"
#include "stowage/error.h"
#include "stowage/models.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

ModelConfig small() {
  ModelConfig config;
  config.layers = 2;
  config.width = 256;
  config.heads = 8;
  config.vocabulary = config.padded_vocabulary = 512;
  config.sequence = 64;
  config.batch = 4;
  return config;
}
Graph make(const ModelConfig& config, const ModelFamily& family = gpt_family) {
  GraphBuilder builder(DataType::bf16);
  AdamW optimizer;
  optimizer.grid.most_slices = 1;
  return builder.finish(family.build(builder, config).loss, optimizer);
}

double sum(const Graph& graph, bool between, std::uint32_t block = no_id) {
  double all = 0;
  for (const Op& op : graph.ops)
    if (op.phase != Phase::update && (block == no_id || graph.half_block_of(op.unit) == block))
      all += between ? op.cost.peer_bytes : op.cost.flops;
  return all;
}

TEST(Split, OfOneIsTheGraph) {
  const Graph graph = make(small());
  EXPECT_EQ(split_of(graph, 1), graph);
  EXPECT_THROW(split_of(graph, 0), InvalidInput);
}

TEST(Split, RefusesWhatIsNoTransformerAndWhatIsCut) {
  GraphBuilder builder;
  AdamW optimizer;
  optimizer.grid = {.slice_bytes = 4096, .most_slices = 8, .least_slices = 2, .least_share = 0};
  const Graph cut = builder.finish(gpt_family.build(builder, small()).loss, optimizer);
  EXPECT_THROW(split_of(cut, 2), InvalidInput);
  Graph other = make(small());
  for (Op& op : other.ops)
    if (op.kernel == "linear" || op.kernel == "linear_gelu") op.kernel = "convolution";
  EXPECT_THROW(split_of(other, 2), InvalidInput);
}

// Work and state are one part of t, but for what few parameters stay whole.
TEST(Split, HasOnePartOfTheWorkAndState) {
  for (const ModelFamily* family : {&gpt_family, &bert_family, &llama_family}) {
    const Graph graph = make(small(), *family);
    for (const int split : {2, 4, 8}) {
      const Graph part = split_of(graph, split);
      check(part);
      EXPECT_NEAR(sum(part, false) / sum(graph, false), 1.0 / split, 0.01) << family->title;
      const auto state = [](const Graph& of) {
        double bytes = 0;
        for (const Tensor& tensor : of.tensors)
          if (tensor.kind == TensorKind::optimizer_state) bytes += static_cast<double>(tensor.bytes());
        return bytes;
      };
      EXPECT_NEAR(state(part) / state(graph), 1.0 / split, family == &bert_family ? 0.12 : 0.02)
          << family->title;
      EXPECT_LT(state(part), state(graph));
    }
  }
}

// A block's collectives are those that the formula of layer_costs.h has: 8 e b s h (t - 1)/t bytes.
TEST(Split, MovesTheBytesOfTheFormula) {
  const ModelConfig config = small();
  for (const ModelFamily* family : {&gpt_family, &bert_family, &llama_family}) {
    const Graph graph = make(config, *family);
    for (const int split : {2, 4, 8}) {
      const Graph part = split_of(graph, split);
      const double rows = 2.0 * static_cast<double>(config.batch * config.sequence * config.width);
      // Half-blocks 1 and 2 are the first block: each has a gather and an exchange forward, and two back.
      for (const std::uint32_t block : {1U, 2U})
        EXPECT_DOUBLE_EQ(sum(part, true, block), 4 * rows * (split - 1) / split) << family->title;
    }
  }
}

TEST(Split, LeavesTheKindsOfCollectivesOfTheFormula) {
  const Graph part = split_of(make(small()), 4);
  std::map<std::string, int> number;  // of the first block
  for (const Op& op : part.ops)
    if (op.phase != Phase::update && (part.half_block_of(op.unit) == 1 || part.half_block_of(op.unit) == 2))
      if (is_collective(op)) ++number[op.kernel + " " + std::string(to_string(op.phase))];
  EXPECT_THAT(number,
              ::testing::ElementsAre(std::pair("exchange backward", 2), std::pair("exchange forward", 2),
                                     std::pair("gather backward", 2), std::pair("gather forward", 2)));
}

// Stages of split products are planned with less memory than those of whole ones.
TEST(Split, IsPlanned) {
  ModelConfig config = small();
  config.micro_batches = 2;
  const Machine machine;
  for (const ModelFamily* family : {&gpt_family, &llama_family}) {
    const Graph graph = make(config, *family), part = split_of(graph, 4);
    for (const auto& [first, last] : {std::pair{0U, 3U}, {3U, 6U}}) {
      const Graph whole_stage = stage_of(graph, {{first, last}}), stage = stage_of(part, {{first, last}});
      const PlanOptions options{.order = MicroBatchOrder::ahead(2)};
      const Bytes least = minimum_bytes(stage, machine, options);
      EXPECT_LT(least, minimum_bytes(whole_stage, machine, options));
      const auto planned = make_plan(stage, machine, {least, unlimited}, options);
      ASSERT_TRUE(std::holds_alternative<Plan>(planned));
      EXPECT_THAT(validate(stage, std::get<Plan>(planned), {least, unlimited}), ::testing::IsEmpty());
    }
  }
}

}  // namespace
}  // namespace stowage
