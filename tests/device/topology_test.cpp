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

TEST(MemoryBinder, DoesNothingForADeviceThatIsNotThere) {
  const MemoryBinder nowhere("7fff:00:00.0"), no_id("a card"), empty("");
  int local = 0;
  EXPECT_FALSE(nowhere.bind(&local, sizeof(local)));
  EXPECT_FALSE(no_id.bind(&local, sizeof(local)));
  EXPECT_FALSE(empty.bind(&local, sizeof(local)));
}

}  // namespace
}  // namespace stowage
