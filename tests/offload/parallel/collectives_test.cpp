#include "offload/parallel/collectives.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "stowage/error.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

constexpr auto gather = CollectiveKind::gather, exchange = CollectiveKind::exchange;

// 4 devices a node. Inside: 100 bytes/s after 1 s. Between: 10 bytes/s each, 20 in all, after 3 s.
Cluster small_cluster(int nodes) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = 4;
  cluster.inside.link = {100, 1, true};
  cluster.network = {10, 20, 3, PeerPath::apart};
  return cluster;
}

TEST(Collectives, EachDeviceReceivesWhatItHasNot) {
  const PeerCurve curve{{100, 2, true}};
  EXPECT_DOUBLE_EQ(collective_seconds(gather, 400, 4, curve), 2 + 3);
  EXPECT_DOUBLE_EQ(collective_seconds(exchange, 400, 4, curve), 2 + 3);
  EXPECT_DOUBLE_EQ(exchange_and_gather_seconds(400, 4, curve), 10);
  EXPECT_EQ(collective_seconds(gather, 400, 1, curve), 0);
  EXPECT_EQ(exchange_and_gather_seconds(400, 1, curve), 0);
}

TEST(Collectives, FollowMeasuredPoints) {
  PeerCurve curve{{100, 2, true}, {{100, 4}, {300, 5}}, {{100, 7}}};
  EXPECT_DOUBLE_EQ(curve.seconds(gather, 50), 3);         // between the latency and the first point
  EXPECT_DOUBLE_EQ(curve.seconds(gather, 100), 4);        // on a point
  EXPECT_DOUBLE_EQ(curve.seconds(gather, 200), 4.5);      // between two
  EXPECT_DOUBLE_EQ(curve.seconds(gather, 300), 5);        // on the last
  EXPECT_DOUBLE_EQ(curve.seconds(gather, 500), 5 + 2);    // beyond, at the link's rate
  EXPECT_DOUBLE_EQ(curve.seconds(exchange, 200), 7 + 1);  // points of its own
  EXPECT_DOUBLE_EQ(collective_seconds(gather, 400, 2, curve), 4.5);
  curve.gathers.front().seconds = 1;  // less than the latency of the fit
  EXPECT_DOUBLE_EQ(curve.seconds(gather, 50), 1);
  curve.most_bytes_per_second = 10;
  EXPECT_DOUBLE_EQ(curve.seconds(gather, 200), 20);
}

// The devices of each group of one kind, as the header numbers them.
std::vector<std::vector<int>> groups(bool tensor, int stages, int parts, int split) {
  std::map<std::pair<int, int>, std::vector<int>> found;
  for (int stage = 0; stage < stages; ++stage) {
    for (int part = 0; part < parts; ++part) {
      for (int i = 0; i < split; ++i)
        found[{stage, tensor ? part : i}].push_back((stage * parts + part) * split + i);
    }
  }
  std::vector<std::vector<int>> all;
  for (auto& [key, devices] : found) all.push_back(std::move(devices));
  return all;
}

// Counts of a group's devices in the nodes that have some.
std::vector<int> counts_by_node(const std::vector<int>& devices, int per_node) {
  std::map<int, int> counts;
  for (const int device : devices) ++counts[device / per_node];
  std::vector<int> all;
  for (const auto& [node, count] : counts) all.push_back(count);
  return all;
}

void expect_place(const std::vector<std::vector<int>>& all, const GroupPlace& place, int per_node,
                  bool& was_even) {
  bool even = true;
  for (const std::vector<int>& devices : all)
    even = even && counts_by_node(devices, per_node) == counts_by_node(all.front(), per_node);
  for (const int count : counts_by_node(all.front(), per_node))
    even = even && count == counts_by_node(all.front(), per_node).front();
  const int size = static_cast<int>(all.front().size());
  ASSERT_EQ(place.in_node * place.nodes, size);
  was_even = even;
  if (even) {
    EXPECT_EQ(counts_by_node(all.front(), per_node),
              std::vector<int>(static_cast<std::size_t>(place.nodes), place.in_node));
  } else {
    EXPECT_EQ(place, (GroupPlace{1, size}));
  }
}

TEST(Collectives, PlacesGroupsWhereTheirDevicesAre) {
  Cluster cluster;
  int even = 0, uneven = 0;
  for (const int per_node : {1, 2, 3, 4, 6, 8}) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int parts = 1; parts <= 9; ++parts) {
        for (int split = 1; split <= 9; ++split) {
          const int devices = stages * parts * split;
          if (devices % per_node != 0) continue;
          cluster.devices_per_node = per_node;
          cluster.nodes = devices / per_node;
          SCOPED_TRACE(::testing::Message()
                       << per_node << " a node, " << stages << " stages of " << parts << " x " << split);
          for (const bool tensor : {true, false}) {
            bool was_even = false;
            expect_place(groups(tensor, stages, parts, split),
                         place_of(tensor ? tensor_group(split) : data_group(parts, split), cluster), per_node,
                         was_even);
            ++(was_even ? even : uneven);
          }
        }
      }
    }
  }
  EXPECT_GT(even, 1000);
  EXPECT_GT(uneven, 100);
}

TEST(Collectives, GroupInOneNodeUsesTheInsideAlone) {
  const Cluster cluster = small_cluster(2);
  EXPECT_DOUBLE_EQ(collective_seconds(gather, 400, tensor_group(4), cluster), 1 + 3);
  EXPECT_DOUBLE_EQ(collective_seconds(exchange, 400, data_group(2, 2), cluster), 1 + 2);
  EXPECT_EQ(collective_seconds(gather, 400, tensor_group(1), cluster), 0);
}

TEST(Collectives, GroupInSeveralNodesWorksOnTwoLevels) {
  const Cluster cluster = small_cluster(3);
  // 300 of 400 bytes inside; then of the own 100 bytes 2/3 from other nodes, at a quarter of the node's 20.
  const double seconds = 1 + 3 + 3 + (200.0 / 3) / 5;
  EXPECT_DOUBLE_EQ(collective_seconds(exchange, 400, tensor_group(12), cluster), seconds);
  EXPECT_DOUBLE_EQ(collective_seconds(gather, 400, data_group(12, 1), cluster), seconds);
  // Two devices of a group in each of three nodes.
  EXPECT_DOUBLE_EQ(collective_seconds(gather, 300, data_group(6, 2), cluster), 1 + 1.5 + 3 + 100.0 / 5);
  // One in each: nothing is done inside.
  EXPECT_DOUBLE_EQ(collective_seconds(gather, 300, data_group(3, 4), cluster), 3 + 200.0 / 5);
}

TEST(Collectives, DevicesOfANodeShareItsNetwork) {
  const Cluster cluster = small_cluster(2);
  EXPECT_EQ(network_link(cluster, 1).bytes_per_second, 10);
  EXPECT_EQ(network_link(cluster, 2).bytes_per_second, 10);
  EXPECT_EQ(network_link(cluster, 4).bytes_per_second, 5);
  EXPECT_EQ(network_link(cluster, 4).latency_seconds, 3);
}

TEST(Collectives, NextStageIsReachedOverTheNetworkIfADeviceOfItIsInAnotherNode) {
  for (const int per_node : {1, 2, 3, 4, 8}) {
    for (int stage_devices = 1; stage_devices <= 17; ++stage_devices) {
      Cluster cluster;
      cluster.devices_per_node = per_node;
      cluster.nodes = 10;
      cluster.inside.link = {1000, 0, true};
      cluster.network = {1e6, 120, 0, PeerPath::apart};
      for (int stage = 0; (stage + 2) * stage_devices <= cluster.devices(); ++stage) {
        bool leaves = false;
        std::map<int, int> senders;  // of each node, whichever their stage
        for (int device = 0; device + stage_devices < cluster.devices(); ++device) {
          if (device / per_node == (device + stage_devices) / per_node) continue;
          leaves = leaves || device / stage_devices == stage;
          ++senders[device / per_node];
        }
        const Link link = link_to_next_stage(cluster, stage_devices, 1, stage);
        EXPECT_EQ(link.bytes_per_second, leaves ? 120.0 / senders.at(0) : 1000)
            << per_node << " a node, stage " << stage << " of " << stage_devices;
      }
    }
  }
  EXPECT_EQ(link_to_next_stage(small_cluster(1), 2, 2, 0).bytes_per_second, 100);
}

MachineFile file_of(PeerPath path) {
  MachineFile file;
  file.device = "one of eight";
  file.backend = "cuda";
  file.h2d.fit = file.d2h.fit = file.h2d_both.fit = file.d2h_both.fit = {25e9, 1e-5, true};
  file.matrix = {{DataType::bf16, 100e12, {}}};
  file.device_bytes_per_second = 1e12;
  file.host_rates = {{32, 120e9}};
  file.peers = PeerDevices{8, 4, {22e9, 4e-5, true}, path};
  return file;
}

TEST(Collectives, DevicesShareHostMemoryAsForThePlanner) {
  const MachineFile through_host = file_of(PeerPath::host_memory);
  // One device at each memory has the link's rate; of four at one, each has a quarter of 120 GB/s, of which a
  // byte takes two.
  EXPECT_EQ(cluster_of(through_host, DataType::bf16, 2).inside.link.bytes_per_second, 22e9);
  EXPECT_EQ(cluster_of(through_host, DataType::bf16, 8).inside.link.bytes_per_second, 15e9);
  EXPECT_EQ(cluster_of(file_of(PeerPath::apart), DataType::bf16, 8).inside.link.bytes_per_second, 22e9);
  for (const int devices : {1, 2, 4, 8}) {
    const Cluster cluster = cluster_of(through_host, DataType::bf16, devices, 3);
    const Machine machine = machine_for(through_host, DataType::bf16, devices);
    EXPECT_EQ(cluster.devices(), 3 * devices);
    EXPECT_EQ(cluster.machine.peer.bytes_per_second, machine.peer.bytes_per_second);
    EXPECT_EQ(cluster.machine.flops_per_second, machine.flops_per_second);
  }
}

TEST(Collectives, MeasuredPointsAreTakenAndShareHostMemory) {
  MachineFile file = file_of(PeerPath::host_memory);
  file.peers->gathers = {{2000000000, 0.2}, {1000000000, 0.05}};  // 20 GB/s, 10 GB/s
  file.peers->exchanges = {{1000000000, 0.09}};
  const PeerCurve two = cluster_of(file, DataType::bf16, 2).inside;
  EXPECT_DOUBLE_EQ(two.seconds(gather, 1e9), 0.05);
  EXPECT_DOUBLE_EQ(two.seconds(gather, 1.5e9), 0.125);
  EXPECT_DOUBLE_EQ(two.seconds(exchange, 1e9), 0.09);
  const PeerCurve eight = cluster_of(file, DataType::bf16, 8).inside;
  EXPECT_DOUBLE_EQ(eight.seconds(gather, 1e9), 1 / 15.0);
  EXPECT_DOUBLE_EQ(eight.seconds(gather, 2e9), 0.2);
}

TEST(Collectives, NetworkThroughTheHostTakesOfItsLinkAndMemory) {
  const MachineFile file = file_of(PeerPath::apart);
  const auto rate = [&](PeerPath path, int devices) {
    return cluster_of(file, DataType::bf16, devices, 2, {50e9, 50e9, 0, path})
        .network.device_bytes_per_second;
  };
  EXPECT_EQ(rate(PeerPath::apart, 8), 50e9);
  EXPECT_EQ(rate(PeerPath::link, 8), 25e9);
  EXPECT_EQ(rate(PeerPath::host_memory, 2), 25e9);   // 120 / 4 would be more than the link
  EXPECT_EQ(rate(PeerPath::host_memory, 8), 7.5e9);  // a quarter of 120, over 4
}

TEST(Collectives, RefusesWhatIsNoCluster) {
  const auto refused = [](const std::string& words, const auto& change) {
    Cluster cluster = small_cluster(2);
    change(cluster);
    test::expect_refused([&] { check_cluster(cluster); }, words);
  };
  check_cluster(small_cluster(2));
  const double no_number = std::numeric_limits<double>::quiet_NaN();
  refused("'nodes' is 0", [](Cluster& c) { c.nodes = 0; });
  refused("'devices_per_node' is 1000000000", [](Cluster& c) { c.devices_per_node = 1000000000; });
  refused("'nodes * devices_per_node' is 8192", [](Cluster& c) { c.nodes = 2048; });
  refused("'machine.flops_per_second' is nan", [&](Cluster& c) { c.machine.flops_per_second = no_number; });
  refused("'machine.device_bytes_per_second'", [](Cluster& c) { c.machine.device_bytes_per_second = 0; });
  refused("'inside.link.bytes_per_second' is -1", [](Cluster& c) { c.inside.link.bytes_per_second = -1; });
  refused("'inside.link.latency_seconds'", [](Cluster& c) { c.inside.link.latency_seconds = 1e308; });
  refused("'inside.most_bytes_per_second'", [](Cluster& c) { c.inside.most_bytes_per_second = 0; });
  refused("points by rising bytes", [](Cluster& c) { c.inside.gathers = {{2, 1}, {2, 1}}; });
  refused("'inside.exchanges' is -1", [](Cluster& c) { c.inside.exchanges = {{2, -1}}; });
  refused("'network.device_bytes_per_second' is 1e+308",
          [](Cluster& c) { c.network.device_bytes_per_second = 1e308; });
  refused("'network.node_bytes_per_second'", [](Cluster& c) { c.network.node_bytes_per_second = 0; });
  refused("'network.latency_seconds'", [](Cluster& c) { c.network.latency_seconds = -1; });
  EXPECT_THROW(cluster_of(file_of(PeerPath::apart), DataType::bf16, 9), InvalidInput);
  EXPECT_THROW(cluster_of(file_of(PeerPath::apart), DataType::f32, 2), InvalidInput);
}

}  // namespace
}  // namespace stowage
