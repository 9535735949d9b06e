#include "src/device/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace stowage {
namespace {

TEST(Topology, DescribesThisMachine) {
  const Topology topology = read_topology();
  EXPECT_GE(topology.cores, 1);
  EXPECT_GE(topology.processing_units, topology.cores);
  EXPECT_LE(topology.processing_units, static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
  ASSERT_FALSE(topology.nodes.empty());
  for (const NumaNode& node : topology.nodes) EXPECT_GT(node.memory, 0u);
}

TEST(Topology, SumsTheMemoryOfItsNodes) {
  Topology topology;
  EXPECT_EQ(topology.memory(), 0u);
  topology.nodes = {{0, 3_GiB}, {1, 5_GiB}};
  EXPECT_EQ(topology.memory(), 8_GiB);
}

}  // namespace
}  // namespace stowage
