#include "offload/plan/problem/buckets.h"

#include <gtest/gtest.h>

#include "offload/recompute/recompute.h"
#include "stowage/error.h"
#include "tests/support/chain_graph.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using testing::chain_graph;
using testing::find_tensor;

BucketLayout layout_of(const Graph& graph, Bytes target, bool on_host = true) {
  return make_buckets(graph, alias_groups(graph), {.target_bytes = target, .group_gradients = on_host});
}

TEST(Buckets, ABucketClosesAtItsTargetInFirstUseOrder) {
  Graph graph = chain_graph({.units = 5, .parameter_elements = 8192});
  BucketLayout layout = layout_of(graph, 3 * 32768);
  ASSERT_EQ(layout.parameters.size(), 3U);  // two and two by the half-full rule at a unit's end, then one
  EXPECT_EQ(layout.bucket_of[find_tensor(graph, "W0")], layout.parameters[0]);
  EXPECT_EQ(layout.bucket_of[find_tensor(graph, "W1")], layout.parameters[0]);
  EXPECT_EQ(layout.bucket_of[find_tensor(graph, "W4")], layout.parameters[2]);
}

TEST(Buckets, TinyParametersShareOneAndStayWithinTheirLimit) {
  // The largest op has three activations (3 MiB): tiny parameters may take 48 KiB.
  Graph graph = chain_graph({.units = 16, .activation_elements = 1 << 18, .parameter_elements = 1024});
  BucketLayout layout = layout_of(graph, 0);
  const Bucket& tiny = layout.buckets[layout.parameters[0]];
  EXPECT_EQ(tiny.tensors.size(), 12U);
  EXPECT_EQ(tiny.bytes, 12U * 4096U);
  EXPECT_EQ(layout.parameters.size(), 5U);
}

TEST(Buckets, GradientsFollowTheirParametersToTheHostAndStandAloneOtherwise) {
  Graph graph = chain_graph({.units = 4, .parameter_elements = 8192});
  BucketLayout layout = layout_of(graph, 65536);
  BucketId gradient = layout.bucket_of[find_tensor(graph, "W0.grad")];
  EXPECT_EQ(layout.roles[gradient], BucketRole::gradient);
  EXPECT_EQ(layout.buckets[gradient].bytes, layout.buckets[layout.bucket_of[find_tensor(graph, "W0")]].bytes);
  BucketLayout resident = layout_of(graph, 65536, false);
  EXPECT_EQ(resident.buckets[resident.bucket_of[find_tensor(graph, "W0.grad")]].tensors.size(), 1U);
}

TEST(Buckets, EveryTensorHasOnePlaceAndNoneOverlap) {
  int shared = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Graph graph = testing::random_graph(seed);
    std::vector<TensorId> groups = alias_groups(graph);
    BucketLayout layout = layout_of(graph, seed % 2 ? 0 : 4096);
    for (BucketId id : layout.parameters) shared += layout.buckets[id].tensors.size() > 1 ? 1 : 0;
    std::vector<int> places(graph.tensors.size(), 0);
    for (BucketId id = 0; id < layout.buckets.size(); ++id)
      for (const BucketTensor& a : layout.buckets[id].tensors) {
        ++places[a.tensor];
        EXPECT_EQ(layout.bucket_of[a.tensor], id);
        Bytes end = a.offset + graph.tensor(a.tensor).bytes();
        EXPECT_LE(end, layout.buckets[id].bytes);
        EXPECT_EQ(a.offset % tensor_alignment(graph.tensor(a.tensor).bytes()), 0U);
        for (const BucketTensor& b : layout.buckets[id].tensors)
          if (groups[a.tensor] == groups[b.tensor])
            EXPECT_EQ(a.offset, b.offset);
          else
            EXPECT_TRUE(end <= b.offset || b.offset + graph.tensor(b.tensor).bytes() <= a.offset);
      }
    EXPECT_EQ(std::count(places.begin(), places.end(), 1), std::ptrdiff_t(places.size())) << seed;
  }
  EXPECT_GT(shared, 10);
}

TEST(Buckets, TheEfficientSizeReaches95PercentOfThePeakAndIsTheSmallestThatDoes) {
  Machine machine;
  machine.h2d = {.bytes_per_second = 8e9, .latency_seconds = 10e-6, .throttled = true};
  machine.d2h = {.bytes_per_second = 4e9, .latency_seconds = 10e-6, .throttled = true};
  Bytes bytes = efficient_bucket_bytes(machine);
  auto rate = [&](Bytes n) { return static_cast<double>(n) / machine.h2d.seconds(n); };
  EXPECT_GE(rate(bytes), 0.95 * 8e9 * (1 - 1e-12));
  EXPECT_LT(rate(bytes - 4), 0.95 * 8e9);
}

// Two parameters may receive the very same gradient, and an update may have no state.
TEST(Buckets, NoneIsEmpty) {
  Graph graph = chain_graph({.units = 2, .parameter_elements = 8192});
  Op& update = graph.ops[testing::find_op(graph, "adamw1")];
  update.reads = {find_tensor(graph, "W1"), find_tensor(graph, "W0.grad"), graph.clip};
  update.writes = {find_tensor(graph, "W1")};
  BucketLayout layout = layout_of(graph, 0);
  for (const Bucket& bucket : layout.buckets) EXPECT_FALSE(bucket.tensors.empty()) << bucket.name;
}

TEST(Buckets, AParameterThatNoOpReadsIsRefusedByName) {
  Graph graph = chain_graph({.units = 2});
  graph.tensors.push_back({"stray", DataType::f32, {4}, TensorKind::parameter, {}});
  TensorId stray = static_cast<TensorId>(graph.tensors.size() - 1);
  for (bool written : {false, true}) {
    if (written) graph.ops.back().writes.push_back(stray);
    try {
      layout_of(graph, 0);
      FAIL() << "planned";
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find("'stray'"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace stowage
