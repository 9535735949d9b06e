// The machine of two_nodes.xml.
#include <gtest/gtest.h>

#include "src/device/topology.h"

namespace stowage {
namespace {

TEST(TopologyNodes, HaveTheHostsMemoryWithoutThatOfCards) {
  const Topology topology = read_topology();
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_EQ(topology.nodes[1].index, 1U);
  EXPECT_EQ(topology.nodes[1].memory, 2_GiB);
  EXPECT_EQ(topology.memory(), 3_GiB);
}

}  // namespace
}  // namespace stowage
