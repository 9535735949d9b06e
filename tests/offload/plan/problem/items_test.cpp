#include "offload/plan/problem/items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::find_op;

// A chain, of which an op makes one value more and others read it.
Graph with_value(int units, const char* writer, const std::vector<const char*>& readers) {
  Graph graph = testing::chain_graph({.units = units});
  const TensorId more = static_cast<TensorId>(graph.tensors.size());
  graph.tensors.push_back({"more", DataType::f32, {16}, TensorKind::activation, {}});
  graph.ops[find_op(graph, writer)].writes.push_back(more);
  for (const char* reader : readers) graph.ops[find_op(graph, reader)].reads.push_back(more);
  return graph;
}

// Each item's unit, values and, if it can be rebuilt, a star.
std::vector<std::string> items_of(const Graph& graph, bool whole_units = false) {
  const RecomputeAnalysis analysis = analyse_recompute(graph);
  const BucketLayout layout = make_buckets(graph, analysis.group, {});
  std::vector<ActivationItem> items = activation_items(graph, analysis, layout);
  if (whole_units) items = whole_unit_items(items);
  std::vector<std::string> names;
  for (const ActivationItem& item : items) {
    std::string& name = names.emplace_back(graph.unit_names[item.unit] + ":");
    Bytes bytes = 0;
    for (BucketId id : item.buckets) {
      name += " " + layout.buckets[id].name;
      bytes += layout.buckets[id].bytes;
    }
    EXPECT_EQ(item.bytes, bytes);
    if (item.rebuildable) name += "*";
  }
  return names;
}

TEST(ActivationItems, AreWhatBackwardReadsInTheOrderInWhichItIsMade) {
  EXPECT_THAT(items_of(testing::chain_graph({.units = 2})),
              ElementsAre("unit0: x0", "unit0: h0*", "unit1: x1", "unit1: h1*", "head: x2"));
  // To rebuild a part of what one op makes costs as much as to rebuild all of it.
  EXPECT_THAT(items_of(with_value(2, "a0", {"b.backward0"})), Contains("unit0: h0 more*"));
  const Graph of_two_ops = with_value(2, "b0", {"b.backward0"});
  EXPECT_THAT(items_of(of_two_ops), Contains("unit0: more*"));
  EXPECT_THAT(items_of(of_two_ops, true),
              ElementsAre("unit0: x0", "unit0: h0 more*", "unit1: x1", "unit1: h1*", "head: x2"));
}

TEST(ActivationItems, AreOfTheUnitWhoseBackwardReadsThemFirst) {
  Graph graph = testing::chain_graph({.units = 4});
  graph.ops[find_op(graph, "a.weight3")].reads.push_back(testing::find_tensor(graph, "x1"));
  EXPECT_THAT(items_of(graph), Contains("unit3: x1"));
}

// Nothing of backward reads it, but unit 2 may lie between its uses.
TEST(ActivationItems, ASkipConnectionIsOneIfAStageLiesBetween) {
  EXPECT_THAT(items_of(with_value(4, "b1", {"b3"})), Contains("unit3: more"));
  EXPECT_EQ(items_of(with_value(4, "b1", {"b2"})), items_of(testing::chain_graph({.units = 4})));
}

}  // namespace
}  // namespace stowage
