#include "offload/parallel/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "stowage/error.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/support/stages.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::IsEmpty;

constexpr std::uint32_t half_blocks = 6;  // embedding, two blocks of two halves, head

Graph stage_model(std::int64_t micro_batches, const ModelFamily& family = gpt_family,
                  std::int64_t ranks = 1) {
  ModelConfig config;
  config.layers = 2;
  config.width = 64;
  config.heads = 2;
  config.vocabulary = 96;
  config.sequence = 16;
  config.batch = 4 * ranks;
  config.micro_batches = micro_batches * ranks;
  config.ranks = ranks;
  if (ranks > 1) config.gradient_groups = ranks;
  GraphBuilder builder;
  return builder.finish(family.build(builder, config).loss, {});
}

// Returns the names that each stage's ops of this kernel read and write.
std::vector<std::set<std::string>> names_of(const std::vector<Graph>& stages, const std::string& kernel) {
  std::vector<std::set<std::string>> names;
  for (const Graph& stage : stages) {
    names.emplace_back();
    for (const Op& op : stage.ops) {
      if (op.kernel != kernel) continue;
      for (const auto* ids : {&op.reads, &op.writes})
        for (TensorId id : *ids) EXPECT_TRUE(names.back().insert(stage.tensor(id).name).second);
    }
  }
  return names;
}

TEST(Stage, OfAllHalfBlocksIsTheGraph) {
  const Graph graph = stage_model(2);
  EXPECT_EQ(stage_of(graph, {{0, half_blocks}}), graph);
  EXPECT_EQ(to_json(stage_of(graph, {{0, half_blocks}})), to_json(graph));
}

TEST(Stage, RefusesRangesThatAreNone) {
  const Graph graph = stage_model(2);
  for (const std::vector<HalfBlocks>& ranges :
       std::vector<std::vector<HalfBlocks>>{{},
                                            {{0, 0}},
                                            {{3, 2}},
                                            {{2, half_blocks + 1}},
                                            {{half_blocks, half_blocks}},
                                            {{2, 3}, {0, 1}},
                                            {{0, 2}, {1, 3}}})
    EXPECT_THROW(stage_of(graph, ranges), InvalidInput) << ranges.size();
  GraphBuilder builder;
  const BuiltModel model =
      gpt(builder, {.layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4});
  EXPECT_THROW(stage_of(builder.finish_without_update(model.loss), {{0, 1}}), InvalidInput);
}

// Each op is in one stage, but for the clip op; what is received is sent by one other stage.
void expect_parted(const Graph& graph, const std::vector<std::uint32_t>& cuts, std::size_t ranges = 1) {
  const std::vector<Graph> stages = stages_of(graph, cuts, ranges);
  std::map<std::string, int> ops;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    check(stages[s]);
    EXPECT_EQ(stages[s].loss != no_id, s + 1 == stages.size()) << s;
    for (const Op& op : stages[s].ops)
      if (!is_between_stages(op)) ++ops[op.name];
  }
  for (const Op& op : graph.ops)
    EXPECT_EQ(ops[op.name], op.kernel == "clip" ? static_cast<int>(stages.size()) : 1) << op.name;
  EXPECT_EQ(ops.size(), graph.ops.size());
  const auto sent = names_of(stages, "send"), received = names_of(stages, "receive");
  std::multiset<std::string> all_sent;
  std::set<std::string> all_received;
  for (const auto& names : sent) all_sent.insert(names.begin(), names.end());
  for (const auto& names : received) all_received.insert(names.begin(), names.end());
  EXPECT_EQ(std::set<std::string>(all_sent.begin(), all_sent.end()), all_received);
  EXPECT_EQ(all_sent.size(), all_received.size()) << "a value is sent twice";
}

TEST(Stage, EachOpIsInOneStage) {
  for (const auto& cuts : std::vector<std::vector<std::uint32_t>>{
           {0, 3, 6}, {0, 1, 6}, {0, 5, 6}, {0, 2, 4, 6}, {0, 1, 2, 3, 4, 5, 6}}) {
    expect_parted(stage_model(1), cuts);
    expect_parted(stage_model(4), cuts);
    expect_parted(stage_model(4, bert_family), cuts);
    expect_parted(stage_model(2, llama_family), cuts);
    expect_parted(stage_model(2, gpt_family, 2), cuts);  // a rank's graph, with its gathers and exchanges
  }
  expect_parted(stage_model(4), {0, 1, 2, 4, 6}, 2);
  expect_parted(stage_model(4, bert_family), {0, 1, 2, 3, 4, 5, 6}, 3);
  expect_parted(stage_model(2, gpt_family, 2), {0, 1, 2, 4, 6}, 2);
}

// Two ranges of two stages: each has a value for each micro-batch over every cut beside it.
TEST(Stage, OfTwoRangesReceivesBeforeEachOfThem) {
  const std::vector<Graph> stages = stages_of(stage_model(4), {0, 1, 2, 4, 6}, 2);
  const std::vector<std::string> first{"micro.0.embedding", "micro.0.h.0.mlp", "micro.0.h.1.attention"},
      second{"micro.0.h.0.attention", "micro.0.h.1.mlp", "micro.0.head"};
  for (std::size_t s = 0; s < 2; ++s) {
    const Graph& stage = stages[s];
    EXPECT_THAT(stage.range_begins, ::testing::ElementsAre(1U));
    std::vector<std::string> units;
    for (std::uint32_t unit = 0; unit < stage.unit_names.size(); unit += 4)
      units.push_back(stage.unit_names[unit]);
    EXPECT_EQ(units, s == 0 ? first : second);
    std::map<std::uint32_t, int> received;
    for (const Op& op : stage.ops)
      if (op.kernel == "receive" && op.phase == Phase::forward &&
          stage.tensor(op.writes.front()).name.find("weight") == std::string::npos)
        ++received[stage.half_block_of(op.unit)];
    EXPECT_EQ(received, s == 0 ? (std::map<std::uint32_t, int>{{1, 4}})
                               : (std::map<std::uint32_t, int>{{0, 4}, {1, 4}}));
  }
  EXPECT_THAT(stages_of(stage_model(1), {0, 1, 2, 4, 6}, 2)[0].range_begins, IsEmpty());
}

// One value of b s h elements for each micro-batch goes over the cut, and its gradient comes back.
TEST(Stage, ReceivesOneValueForEachMicroBatch) {
  constexpr std::uint32_t parts = 4;
  const Graph stage = stage_of(stage_model(parts), {{2, 4}});
  std::map<std::string, int> number;
  for (const Op& op : stage.ops) {
    if (!is_between_stages(op)) continue;
    const bool is_norm = op.name.find("square_sum") != std::string::npos;
    if (is_norm) continue;
    ++number[op.kernel + " " + std::string(to_string(op.phase))];
    EXPECT_EQ(op.cost.peer_bytes, 4.0 / parts * 16 * 64 * 4) << op.name;
  }
  EXPECT_THAT(number,
              ::testing::ElementsAre(std::pair("receive backward", 4), std::pair("receive forward", 4),
                                     std::pair("send backward", 4), std::pair("send forward", 4)));
}

// With several ranks one stage adds up the norm's parts; they come to it together, too.
TEST(Stage, MovesThePartsOfTheNormTogether) {
  for (const std::int64_t ranks : {1, 2})
    for (const Graph& stage : stages_of(stage_model(2, gpt_family, ranks), {0, 3, 6})) {
      int moves = 0;
      for (const Op& op : stage.ops)
        moves += is_between_stages(op) && op.name.find("square_sum") != std::string::npos ? 1 : 0;
      EXPECT_EQ(moves, ranks == 1 ? 2 : 1);
    }
}

// The table is the first stage's. The last one receives it once, and sends its part of the gradient once.
TEST(Stage, TheTableBelongsToItsFirstStage) {
  const std::vector<Graph> stages = stages_of(stage_model(4), {0, 2, 4, 6});
  const auto kind_of_table = [&](std::size_t s) -> std::optional<TensorKind> {
    for (const Tensor& tensor : stages[s].tensors)
      if (tensor.name == "wte.weight") return tensor.kind;
    return {};
  };
  EXPECT_EQ(kind_of_table(0), TensorKind::parameter);
  EXPECT_EQ(kind_of_table(1), std::nullopt);
  EXPECT_EQ(kind_of_table(2), TensorKind::activation);
  EXPECT_TRUE(names_of(stages, "send")[0].contains("wte.weight"));
  EXPECT_TRUE(names_of(stages, "receive")[2].contains("wte.weight"));
  const auto updates = [](const Graph& graph, const std::string& parameter) {
    return std::count_if(graph.ops.begin(), graph.ops.end(),
                         [&](const Op& op) { return op.name.starts_with(parameter + ".adamw"); });
  };
  EXPECT_GT(updates(stages[0], "wte.weight"), 0);
  EXPECT_EQ(updates(stages[2], "wte.weight"), 0);
}

// Stages of a rank's graph are planned with all the kinds of ops on the peer lane.
TEST(Stage, IsPlannedForARankToo) {
  const Graph graph = stage_model(2, gpt_family, 2);
  const Machine machine;
  for (const Graph& stage : stages_of(graph, {0, 2, 4, 6})) {
    const PlanOptions options{.order = MicroBatchOrder::ahead(2)};
    const Bytes least = minimum_bytes(stage, machine, options);
    const auto planned = make_plan(stage, machine, {least, unlimited}, options);
    ASSERT_TRUE(std::holds_alternative<Plan>(planned));
    EXPECT_THAT(validate(stage, std::get<Plan>(planned), {least, unlimited}), IsEmpty());
  }
}

}  // namespace
}  // namespace stowage
