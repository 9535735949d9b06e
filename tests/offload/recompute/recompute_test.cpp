#include "offload/recompute/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

using testing::chain_graph;
using ::testing::ElementsAre;
using testing::find_op;
using testing::find_tensor;

TEST(Recompute, AUnitSavesWhatItsBackwardReadsAndReplaysOnlyWhatMakesThat) {
  Graph graph = chain_graph({.units = 2});
  RecomputeAnalysis analysis = analyse_recompute(graph);
  ASSERT_EQ(analysis.units.size(), 4U);  // embed, two units, head
  EXPECT_THAT(analysis.units[1].saved, ElementsAre(find_tensor(graph, "h0")));
  EXPECT_THAT(analysis.units[1].ops, ElementsAre(find_op(graph, "a0")));  // b0 makes x1, which crosses units
  EXPECT_THAT(analysis.units[1].inputs, ElementsAre(find_tensor(graph, "x0")));
  EXPECT_EQ(analysis.units[1].saved_bytes, 4096U);
}

// The last block and the head as one unit: its backward begins where its forward has just ended.
TEST(Recompute, TheUnitInWhichForwardTurnsIsNotReplayed) {
  Graph graph = chain_graph({.units = 2});
  for (Op& op : graph.ops)
    if (op.unit == 3) op.unit = 2;
  graph.unit_names.pop_back();
  check(graph);
  RecomputeAnalysis analysis = analyse_recompute(graph);
  EXPECT_THAT(analysis.units[1].ops, ElementsAre(find_op(graph, "a0")));
  EXPECT_TRUE(analysis.units[2].saved.empty());
  EXPECT_TRUE(analysis.units[2].ops.empty());
  EXPECT_THAT(analysis.units[2].inputs, ::testing::Contains(find_tensor(graph, "x1")));
}

// a0 makes h0 and k0 for backward; c0 makes m0 from k0.
struct TwoSaved {
  TwoSaved() : graph(chain_graph({.units = 1})) {
    k = add("k0"), m = add("m0");
    const OpId a0 = find_op(graph, "a0");
    Op k0 = graph.ops[a0], m0 = graph.ops[a0];
    k0.name = "k0", k0.writes = {k};
    m0.name = "m0", m0.reads = {k}, m0.writes = {m};
    graph.ops.insert(graph.ops.begin() + a0 + 1, {k0, m0});
    for (TensorId id : {k, m}) graph.ops[find_op(graph, "b.backward0")].reads.push_back(id);
    analysis = analyse_recompute(graph);
  }
  TensorId add(const char* name) {
    graph.tensors.push_back({name, DataType::f32, {1024}, TensorKind::activation, {}});
    return static_cast<TensorId>(graph.tensors.size() - 1);
  }
  std::vector<std::string> replayed(const std::vector<TensorId>& staying) const {
    const PartialReplay replay = replay_of(graph, analysis, 1, [&](TensorId group) {
      return std::find(staying.begin(), staying.end(), group) != staying.end();
    });
    std::vector<std::string> names;
    for (OpId op : replay.ops) names.push_back(graph.op(op).name);
    return names;
  }
  Graph graph;
  TensorId k = no_id, m = no_id;
  RecomputeAnalysis analysis;
};

TEST(Recompute, AReplayRebuildsOnlyWhatDoesNotStay) {
  TwoSaved with;
  const TensorId h = find_tensor(with.graph, "h0");
  EXPECT_THAT(with.replayed({}), ElementsAre("a0", "k0", "m0"));
  EXPECT_THAT(with.replayed({h}), ElementsAre("k0", "m0"));
  EXPECT_THAT(with.replayed({h, with.k}), ElementsAre("m0"));  // from the k0 that stayed
  EXPECT_THAT(with.replayed({h, with.m}), ElementsAre("k0"));
  EXPECT_THAT(with.replayed({with.k, with.m}), ElementsAre("a0"));
  EXPECT_THAT(with.replayed({h, with.k, with.m}), ElementsAre());
}

// m0 is made over k0: what stays is m0, so whoever needs k0 once more needs it rebuilt, and m0 with it.
TEST(Recompute, AnEarlierStateOfWhatStaysIsRebuilt) {
  TwoSaved with;
  Op& over = with.graph.ops[find_op(with.graph, "m0")];
  over.may_alias = {{0, 0}};
  Op reader = over;  // makes n0 from k0, before m0 overwrites that
  reader.name = "n0", reader.may_alias = {}, reader.writes = {with.add("n0")};
  with.graph.ops.insert(with.graph.ops.begin() + find_op(with.graph, "m0"), reader);
  Op& backward = with.graph.ops[find_op(with.graph, "b.backward0")];
  backward.reads = {find_tensor(with.graph, "h0"), with.m, find_tensor(with.graph, "n0"), backward.reads[1]};
  with.analysis = analyse_recompute(with.graph);
  const TensorId h = find_tensor(with.graph, "h0"), n = find_tensor(with.graph, "n0");
  const TensorId group = with.analysis.group[with.m];
  EXPECT_EQ(group, with.analysis.group[with.k]);
  EXPECT_THAT(with.replayed({h, n, group}), ElementsAre());
  EXPECT_THAT(with.replayed({h, group}), ElementsAre("k0", "n0", "m0"));
}

TEST(Recompute, WhatCrossesUnitsAndTheLossAreBoundaries) {
  Graph graph = chain_graph({.units = 2});
  RecomputeAnalysis analysis = analyse_recompute(graph);
  for (const char* name : {"x0", "x1", "x2", "loss"})
    EXPECT_TRUE(analysis.boundary[find_tensor(graph, name)]) << name;
  for (const char* name : {"h0", "h1", "dh0"})
    EXPECT_FALSE(analysis.boundary[find_tensor(graph, name)]) << name;
}

TEST(Recompute, AliasesJoinTensorsIntoOneGroup) {
  Graph graph = chain_graph({.units = 2});
  Op& op = graph.ops[find_op(graph, "b.backward0")];
  op.may_alias.push_back({0, 1});  // dh0 over dx1
  std::vector<TensorId> group = alias_groups(graph);
  EXPECT_EQ(group[find_tensor(graph, "dh0")], group[find_tensor(graph, "dx1")]);
  EXPECT_NE(group[find_tensor(graph, "dh1")], group[find_tensor(graph, "dx1")]);
}

// x1 is overwritten by the unit that reads it, so nothing that needs x1 can be rebuilt.
TEST(Recompute, WhatNeedsAnOverwrittenInputIsNotReplayed) {
  Graph graph = chain_graph({.units = 2});
  TensorId x1 = find_tensor(graph, "x1");
  Op& reader = graph.ops[find_op(graph, "a.weight1")];  // reads x1 in backward; make it read h1 only
  reader.reads[0] = find_tensor(graph, "h1");
  Op& over = graph.ops[find_op(graph, "a1")];
  over.may_alias.push_back({0, 0});  // h1 over x1
  ASSERT_EQ(over.reads[0], x1);
  RecomputeAnalysis analysis = analyse_recompute(graph);
  EXPECT_TRUE(analysis.units[2].saved.empty());
  EXPECT_TRUE(analysis.units[2].ops.empty());
}

// b0 makes y beside x1; c0 works on y in place with what a later unit overwrites, so y's group cannot
// be rebuilt: neither may b0 be replayed for what else it makes.
TEST(Recompute, AnOpIsReplayedOnlyIfAllItWritesIsRebuilt) {
  Graph graph = chain_graph({.units = 2});
  graph.tensors.push_back({"y", DataType::f32, {1024}, TensorKind::activation, {}});
  graph.tensors.push_back({"c", DataType::f32, {1024}, TensorKind::activation, {}});
  TensorId y = static_cast<TensorId>(graph.tensors.size() - 2);
  TensorId c = y + 1;
  OpId a0 = find_op(graph, "a0");
  graph.ops[a0].writes.push_back(y);
  Op in_place = graph.ops[a0];
  in_place.name = "c0";
  in_place.reads = {y, find_tensor(graph, "x0")};
  in_place.writes = {c};
  in_place.may_alias = {{0, 0}};
  graph.ops.insert(graph.ops.begin() + a0 + 1, in_place);
  Op over = in_place;  // in the next unit, over x0
  over.name = "over";
  over.unit = 2;
  over.reads = {find_tensor(graph, "x0")};
  over.writes = {static_cast<TensorId>(graph.tensors.size())};
  graph.tensors.push_back({"x0 again", DataType::f32, {1024}, TensorKind::activation, {}});
  graph.ops.insert(graph.ops.begin() + find_op(graph, "a1"), over);
  graph.ops[find_op(graph, "b.backward0")].reads.push_back(c);
  EXPECT_TRUE(analyse_recompute(graph).units[1].ops.empty());
}

}  // namespace
}  // namespace stowage
