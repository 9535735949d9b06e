// Gathers that a rank's backward makes anew, in front of exchanges of gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/problem/buckets.h"
#include "offload/plan/schedule/candidate.h"
#include "stowage/models.h"
#include "stowage/nn.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

using ::testing::IsEmpty;

Graph gpt_of_one_rank() {
  GraphBuilder builder(DataType::bf16);
  ModelConfig config{.layers = 4, .width = 128, .heads = 2, .vocabulary = 256, .sequence = 64, .batch = 8};
  config.micro_batches = config.gradient_groups = config.ranks = 2;
  const BuiltModel model = gpt(builder, config);
  return builder.finish(model.loss, AdamW{});
}

// Of weights: those of biases and norms have a small share of an average one's bytes.
constexpr Bytes large = 10'000;

struct Setting {
  Draft draft(std::uint32_t gathers_ahead) const {
    return make_lifetimes(graph, problem.analysis, problem.layout, choices, gathers_ahead);
  }
  bool is_large_exchange(const SequenceStep& step) const {
    const Op& op = graph.op(step.op);
    return op.kernel == "exchange" && graph.tensor(op.writes.front()).bytes() > large;
  }
  bool is_replayed_gather(const SequenceStep& step) const {
    return step.recompute && graph.op(step.op).kernel == "gather";
  }
  // Each replayed gather with how many large exchanges stand before it.
  std::vector<std::pair<OpId, int>> gathers(const Draft& draft) const {
    std::vector<std::pair<OpId, int>> found;
    int exchanges = 0;
    for (const SequenceStep& step : draft.sequence) {
      exchanges += is_large_exchange(step) ? 1 : 0;
      if (is_replayed_gather(step)) found.emplace_back(step.op, exchanges);
    }
    return found;
  }
  std::vector<OpId> all_else(const Draft& draft) const {
    std::vector<OpId> found;
    for (const SequenceStep& step : draft.sequence)
      if (!is_replayed_gather(step)) found.push_back(step.op);
    return found;
  }
  Machine machine;
  Graph graph = gpt_of_one_rank();
  Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  Choices choices = lowest_choices(problem);
};

TEST(OpLanes, WhatFollowsExchangesGoesWithThem) {
  const Graph graph = gpt_of_one_rank();
  const std::vector<LaneRole> lanes = op_lanes(graph);
  ASSERT_EQ(lanes.size(), graph.ops.size());
  std::set<std::string> peers, computing;
  for (OpId id = 0; id < graph.ops.size(); ++id)
    (lanes[id] == LaneRole::peer ? peers : computing).insert(graph.op(id).kernel);
  // Gradients of tied parameters are added up too, and the sums of loss and norm.
  EXPECT_EQ(peers, (std::set<std::string>{"gather", "exchange", "tree_sum", "accumulate", "square_sum",
                                          "norm_part"}));
  EXPECT_FALSE(computing.contains("tree_sum"));
  EXPECT_TRUE(computing.contains("adamw"));
  EXPECT_TRUE(computing.contains("embedding"));
}

TEST(GathersAhead, StandBeforeSoManyLargeExchanges) {
  const Setting setting;
  const Draft plain = setting.draft(0);
  const std::vector<std::pair<OpId, int>> last = setting.gathers(plain);
  ASSERT_GT(last.size(), 20U);
  for (const int ahead : {1, 2, 5}) {
    SCOPED_TRACE(ahead);
    const Draft draft = setting.draft(static_cast<std::uint32_t>(ahead));
    const std::vector<std::pair<OpId, int>> moved = setting.gathers(draft);
    ASSERT_EQ(moved.size(), last.size());
    for (std::size_t i = 0; i < last.size(); ++i) {
      EXPECT_EQ(moved[i].first, last[i].first) << i;  // in the same order
      EXPECT_EQ(moved[i].second, std::max(0, last[i].second - ahead)) << i;
    }
    EXPECT_EQ(setting.all_else(draft), setting.all_else(plain));
    EXPECT_EQ(draft.backward_end, plain.backward_end);
  }
}

// Where an op takes about as long as what its weight and gradient move, the lane would wait for every
// gradient.
TEST(GathersAhead, KeepThePeerLaneBusy) {
  Setting setting;
  setting.machine.flops_per_second = 2e11;
  setting.machine.peer = {.bytes_per_second = 5e8, .latency_seconds = 1e-6};
  const Sketcher sketcher(setting.problem, setting.choices);
  const auto stall_with = [&](std::uint32_t gathers_ahead) {
    const Sketch sketch = sketcher.within(2 * sketcher.serial_bytes(), gathers_ahead);
    const Plan plan = complete(setting.problem, sketch.draft);
    EXPECT_THAT(validate(setting.graph, plan, {}), IsEmpty());
    return plan.predicted_stall_seconds;
  };
  const double plain = stall_with(0);
  EXPECT_LT(stall_with(1), 0.8 * plain);
  EXPECT_LT(stall_with(2), 0.8 * plain);
}

}  // namespace
}  // namespace stowage
