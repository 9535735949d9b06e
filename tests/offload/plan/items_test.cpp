#include "offload/plan/items.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

using testing::chain_graph;
using testing::find_op;
using testing::find_tensor;

std::vector<ActivationItem> items_of(const Graph& graph, BucketLayout& layout) {
  const RecomputeAnalysis analysis = analyse_recompute(graph);
  layout = make_buckets(graph, analysis.group, {});
  return activation_items(graph, analysis, layout);
}

TEST(ActivationItems, AreWhatBackwardReadsInTheOrderInWhichItIsMade) {
  const Graph graph = chain_graph({.units = 2});
  BucketLayout layout;
  std::vector<std::pair<std::string, bool>> found;
  for (const ActivationItem& item : items_of(graph, layout)) {
    ASSERT_EQ(item.buckets.size(), 1U);
    EXPECT_EQ(item.bytes, layout.buckets[item.buckets[0]].bytes);
    found.emplace_back(layout.buckets[item.buckets[0]].name, item.rebuildable);
  }
  const std::vector<std::pair<std::string, bool>> expected{
      {"x0", false}, {"h0", true}, {"x1", false}, {"h1", true}, {"x2", false}};
  EXPECT_EQ(found, expected);
}

// What one op makes is kept or dropped together: rebuilding a part costs as much as rebuilding all.
TEST(ActivationItems, WhatOneOpMakesIsOneItem) {
  Graph graph = chain_graph({.units = 1});
  const TensorId beside = static_cast<TensorId>(graph.tensors.size());
  graph.tensors.push_back({"beside", DataType::f32, {16}, TensorKind::activation, {}});
  graph.ops[find_op(graph, "a0")].writes.push_back(beside);
  graph.ops[find_op(graph, "b.backward0")].reads.push_back(beside);
  BucketLayout layout;
  const std::vector<ActivationItem> items = items_of(graph, layout);
  ASSERT_EQ(items.size(), 3U);  // x0; h0 and beside; x1
  EXPECT_EQ(items[1].buckets.size(), 2U);
  EXPECT_EQ(items[1].bytes, 4096U + 64U);
  Choices choices;
  choices.activations.assign(layout.buckets.size(), ActivationChoice::recompute);
  choose(items[1], ActivationChoice::keep, choices);
  EXPECT_EQ(choice_of(items[1], choices), ActivationChoice::keep);
  for (const char* name : {"h0", "beside"})
    EXPECT_EQ(choices.activations[layout.bucket_of[find_tensor(graph, name)]], ActivationChoice::keep);
}

// Made by unit 1, and read by unit 3 alone: nothing of backward wants it, but unit 2 lies between.
TEST(ActivationItems, ASkipConnectionThatBackwardDoesNotReadIsAnItemIfAStageLiesBetween) {
  for (const char* reader : {"b2", "b3"}) {
    Graph graph = chain_graph({.units = 4});
    const TensorId skip = static_cast<TensorId>(graph.tensors.size());
    graph.tensors.push_back({"skip", DataType::f32, {1024}, TensorKind::activation, {}});
    graph.ops[find_op(graph, "b1")].writes.push_back(skip);
    graph.ops[find_op(graph, reader)].reads.push_back(skip);
    BucketLayout layout;
    const std::vector<ActivationItem> items = items_of(graph, layout);
    const auto found = std::find_if(items.begin(), items.end(), [&](const ActivationItem& item) {
      return item.buckets.front() == layout.bucket_of[skip];
    });
    ASSERT_EQ(found != items.end(), reader[1] == '3') << reader;
    if (found == items.end()) continue;
    EXPECT_FALSE(found->rebuildable);
    EXPECT_EQ(found->writer, find_op(graph, "b1"));
    EXPECT_EQ(found->unit, graph.ops[find_op(graph, "b3")].unit);
    EXPECT_EQ(found->bytes, 4096U);
  }
}

TEST(WholeUnitItems, JoinWhatAUnitsReplayRebuildsAndNothingElse) {
  Graph graph = chain_graph({.units = 2});
  const TensorId later = static_cast<TensorId>(graph.tensors.size());
  graph.tensors.push_back({"later", DataType::f32, {16}, TensorKind::activation, {}});
  graph.ops[find_op(graph, "b0")].writes.push_back(later);
  graph.ops[find_op(graph, "b.backward0")].reads.push_back(later);
  BucketLayout layout;
  const std::vector<ActivationItem> items = items_of(graph, layout);
  ASSERT_EQ(items.size(), 6U);
  std::vector<std::pair<std::string, bool>> found;
  for (const ActivationItem& item : whole_unit_items(items)) {
    std::string names;
    Bytes bytes = 0;
    for (BucketId id : item.buckets) {
      names += layout.buckets[id].name + ' ';
      bytes += layout.buckets[id].bytes;
    }
    EXPECT_EQ(item.bytes, bytes);
    found.emplace_back(names, item.rebuildable);
  }
  const std::vector<std::pair<std::string, bool>> expected{
      {"x0 ", false}, {"h0 later ", true}, {"x1 ", false}, {"h1 ", true}, {"x2 ", false}};
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace stowage
