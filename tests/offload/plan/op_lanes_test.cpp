#include "offload/plan/op_lanes.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "stowage/models.h"

namespace stowage {
namespace {

Graph gpt_of(std::int64_t ranks) {
  GraphBuilder builder(DataType::f32);
  GptConfig config{.layers = 2, .width = 32, .heads = 2, .vocabulary = 64, .sequence = 8, .batch = 4};
  config.micro_batches = ranks;
  config.gradient_groups = ranks;
  config.ranks = ranks;
  const Gpt model = gpt(builder, config);
  return builder.finish(model.loss, AdamW{});
}

TEST(OpLanes, OneDeviceHasNoPeers) {
  for (const LaneRole lane : op_lanes(gpt_of(1))) EXPECT_EQ(lane, LaneRole::compute);
}

TEST(OpLanes, WhatFollowsExchangesGoesWithThem) {
  const Graph graph = gpt_of(2);
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

}  // namespace
}  // namespace stowage
