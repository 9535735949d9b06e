#include "offload/parallel/layer_costs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "offload/parallel/stage_table.h"
#include "tests/machine/sample_file.h"
#include "tests/support/expect_refused.h"
#include "tests/support/megatron_tables.h"

namespace stowage {
namespace {

Cluster two_nodes_of_four() {
  Cluster cluster;
  cluster.nodes = 2;
  cluster.devices_per_node = 4;
  cluster.inside.link = {.bytes_per_second = 100, .latency_seconds = 1};
  cluster.between = {.bytes_per_second = 10, .latency_seconds = 2};
  return cluster;
}

TEST(Collectives, ADeviceReceivesAllButItsOwnShare) {
  const PeerCurve curve{{.bytes_per_second = 10, .latency_seconds = 3}};
  EXPECT_DOUBLE_EQ(one_level_seconds(curve, Collective::gather, 400, 4), 3 + 30);
  EXPECT_EQ(one_level_seconds(curve, Collective::exchange, 400, 1), 0);
}

TEST(Collectives, TakeMeasuredTimesWhereThereAreSome) {
  PeerCurve curve{{.bytes_per_second = 1, .latency_seconds = 0}};
  curve.gathers = {{100, 2}, {200, 3}, {400, 9}};
  EXPECT_DOUBLE_EQ(curve.seconds(Collective::gather, 10), 2);
  EXPECT_DOUBLE_EQ(curve.seconds(Collective::gather, 150), 2.5);
  EXPECT_DOUBLE_EQ(curve.seconds(Collective::gather, 300), 6);
  EXPECT_DOUBLE_EQ(curve.seconds(Collective::gather, 800), 18);
  EXPECT_EQ(curve.seconds(Collective::gather, 0), 0);
  EXPECT_DOUBLE_EQ(curve.seconds(Collective::exchange, 150), 150) << "not measured: by the link";
}

TEST(Collectives, WorkOnTwoLevelsWhereAGroupLeavesItsNode) {
  const Cluster cluster = two_nodes_of_four();
  // All eight: each has a fourth after the exchange in its node, and half of that after the one between the
  // nodes.
  EXPECT_DOUBLE_EQ(collective_seconds(cluster, Collective::exchange, 800, {8, 1}),
                   (1 + 600.0 / 100) + (2 + 100.0 / 10));
  // Four neighbours stay in their node; two devices that are four apart never share one.
  EXPECT_DOUBLE_EQ(collective_seconds(cluster, Collective::gather, 800, {4, 1}), 1 + 600.0 / 100);
  EXPECT_DOUBLE_EQ(collective_seconds(cluster, Collective::gather, 800, {2, 4}), 2 + 400.0 / 10);
  // Every second device: two in each node.
  EXPECT_EQ(members_in_a_node(cluster, {4, 2}), 2);
  EXPECT_DOUBLE_EQ(collective_seconds(cluster, Collective::gather, 800, {4, 2}),
                   (1 + 400.0 / 100) + (2 + 200.0 / 10));
}

TEST(Collectives, DevicesOfANodeShareItsWayOut) {
  Cluster cluster = two_nodes_of_four();
  cluster.node_bytes_per_second = 20;  // five for each of four devices
  EXPECT_DOUBLE_EQ(cluster.shared_between().bytes_per_second, 5);
  EXPECT_DOUBLE_EQ(collective_seconds(cluster, Collective::gather, 800, {2, 4}), 2 + 400.0 / 5);
  cluster.node_bytes_per_second = 400;
  EXPECT_DOUBLE_EQ(cluster.shared_between().bytes_per_second, 10) << "a device has no more than its own link";
}

TEST(Collectives, SharesOfAMachineAreThoseOfItsPlanner) {
  MachineFile file = test::sample_file();
  const Cluster cluster = cluster_of(file, DataType::bf16);
  EXPECT_EQ(cluster.devices_per_node, file.peers->devices);
  const Machine machine = machine_for(file, DataType::bf16, file.peers->devices);
  EXPECT_EQ(cluster.inside.link.bytes_per_second, machine.peer.bytes_per_second);
  EXPECT_EQ(cluster.inside.gathers.size(), file.peers->gathers.size());
  file.peers.reset();
  EXPECT_EQ(cluster_of(file, DataType::bf16).devices(), 1);
}

TransformerSizes small_model() {
  return {.layers = 4, .hidden = 64, .heads = 4, .sequence = 32, .vocabulary = 1000, .element_bytes = 2};
}

TEST(LayerCosts, EachPairOfProductsHasAGatherAndAnExchangeInEachDirection) {
  const auto collectives = split_collectives(small_model(), 3, 2);
  ASSERT_EQ(collectives.size(), 8U);
  int gathers = 0, forward = 0;
  for (const LayerCollective& each : collectives) {
    EXPECT_EQ(each.bytes, 3 * 32 * 64 * 2);
    gathers += each.collective == Collective::gather;
    forward += each.phase == Phase::forward;
    const bool first = each.op == "attention.qkv" || each.op == "mlp.up";
    // Forward gathers before the first product of a pair; backward exchanges behind it.
    EXPECT_EQ(first == (each.phase == Phase::forward), each.collective == Collective::gather);
  }
  EXPECT_EQ(gathers, 4);
  EXPECT_EQ(forward, 4);
  EXPECT_TRUE(split_collectives(small_model(), 3, 1).empty());
}

TEST(LayerCosts, SharesAreGatheredForEachUseAndWholeWeightsOnceAStep) {
  const auto whole = parts_collectives(small_model(), 100, 4, Replicas::whole);
  ASSERT_EQ(whole.size(), 2U);
  for (const LayerCollective& each : whole) EXPECT_TRUE(each.once_a_step);
  const auto shares = parts_collectives(small_model(), 100, 4, Replicas::shares);
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_FALSE(shares[0].once_a_step);
  EXPECT_FALSE(shares[1].once_a_step);
  EXPECT_EQ(shares[1].phase, Phase::backward);
  EXPECT_TRUE(shares[2].once_a_step);
  EXPECT_TRUE(parts_collectives(small_model(), 100, 1, Replicas::shares).empty());
}

TEST(LayerCosts, SplittingDividesProductsAndNotWhatEachDeviceDoes) {
  const TransformerSizes sizes = small_model();
  const DeviceRates only_flops{1, 1e30}, only_bytes{1e30, 1};
  const double flops = layer_forward_seconds(sizes, 2, 1, only_flops);
  EXPECT_DOUBLE_EQ(flops, 24.0 * 2 * 32 * 64 * 64 * (1 + 32.0 / (6 * 64)));
  EXPECT_DOUBLE_EQ(layer_forward_seconds(sizes, 2, 4, only_flops), flops / 4);
  const double elements = 2 * 32 * 64, scores = 4.0 * 32 * 32 * 2;
  EXPECT_DOUBLE_EQ(layer_forward_seconds(sizes, 2, 2, only_bytes),
                   16 * elements + (18 * elements + 10 * scores) / 2);
  EXPECT_DOUBLE_EQ(kept_bytes(sizes, 2, 1, false), elements * (34 + 5 * 4 * 32.0 / 64));
  EXPECT_DOUBLE_EQ(kept_bytes(sizes, 2, 1, true), 2 * elements);
}

TEST(LayerCosts, AModelBecomesCostsThatTheSearchesTake) {
  TransformerQuestion question;
  question.sizes = small_model();
  question.cluster = two_nodes_of_four();
  question.cluster.inside.link = {.bytes_per_second = 100e9, .latency_seconds = 1e-5};
  question.cluster.between = {.bytes_per_second = 10e9, .latency_seconds = 1e-5};
  question.rates = {1e12, 1e12};
  question.batch = 32;
  question.micro_batches = 8;
  ParallelCosts costs = costs_of_transformer(question);
  EXPECT_EQ(costs.layers.size(), 6U);
  EXPECT_EQ(costs.devices, 8);
  // Parts 1, 2 and 4 of four samples, splits 1, 2 and 4 of four heads and devices, on at most eight; kept and
  // rebuilt.
  EXPECT_EQ(costs.layers[1].variants.size(), 2U * 8);
  EXPECT_EQ(parallel_costs_from_json(to_json(costs)).layers[1].variants, costs.layers[1].variants);
  StageTable table(costs);
  const SearchAnswer fast = search_pipeline(table, question_of(costs));
  ASSERT_TRUE(fast.best && fast.proven);
  // A third of the bytes of one device that has all: something is spread or rebuilt.
  costs.memory = 0;
  for (const ParallelLayer& layer : costs.layers) costs.memory += layer.variants[0].bytes / 3;
  StageTable small(costs);
  const SearchAnswer tight = search_pipeline(small, question_of(costs));
  ASSERT_TRUE(tight.best);
  EXPECT_GE(question_of(costs).value(*tight.best), question_of(costs).value(*fast.best));
  question.micro_batches = 5;
  test::expect_refused([&] { costs_of_transformer(question); },
                       "5 micro-batches do not divide a batch of 32");
  question.micro_batches = 8;
  question.sizes.hidden = 0;
  test::expect_refused([&] { costs_of_transformer(question); }, "a size or rate of the model is 0");
}

TEST(Megatron, TwoConstantsPriceFourteenRows) {
  const std::string folder = STOWAGE_TEST_DATA "/parallel/megatron/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const auto first = testing::read_megatron_table(folder + "table1.csv");
  const auto second = testing::read_megatron_table(folder + "table2.csv");
  ASSERT_EQ(first.size(), 10U);
  ASSERT_EQ(second.size(), 12U);
  const testing::MegatronConstants constants = testing::fit_megatron({first[0], first[6]});
  EXPECT_EQ(first[6].model, "145.6B");
  EXPECT_NEAR(constants.products, 0.642, 0.001);
  EXPECT_NEAR(constants.memory, 1.133, 0.001);
  for (const auto* table : {&first, &second}) {
    for (const testing::MegatronRow& row : *table) {
      if (row.model == "ZeRO-3") continue;
      const double predicted =
          testing::megatron_teraflops(row, testing::megatron_step_seconds(row, constants));
      EXPECT_NEAR(predicted / row.teraflops, 1, 0.08) << row.model << " on " << row.devices;
    }
  }
}

}  // namespace
}  // namespace stowage
