#include "offload/plan/lane_speeds.h"

#include <gtest/gtest.h>

#include <limits>

namespace stowage {
namespace {

constexpr LaneMask compute = mask_of(LaneRole::compute), in = mask_of(LaneRole::h2d);
constexpr LaneMask out = mask_of(LaneRole::d2h), host = mask_of(LaneRole::host);
constexpr LaneMask peer = mask_of(LaneRole::peer);

Machine machine_of(double h2d, double d2h, double host_rate) {
  Machine machine;
  machine.h2d.bytes_per_second = h2d;
  machine.d2h.bytes_per_second = d2h;
  machine.host_bytes_per_second = host_rate;
  return machine;
}

TEST(LaneSpeeds, NothingIsSharedByDefault) {
  const LaneSpeeds speeds{Machine{}};
  EXPECT_FALSE(speeds.shared());
  for (LaneMask working = 0; working < 16; ++working)
    for (const LaneRole lane : {LaneRole::compute, LaneRole::h2d, LaneRole::d2h, LaneRole::host})
      EXPECT_EQ(speeds.of(working, lane), 1.0);
}

TEST(LaneSpeeds, EachDirectionIsSlowerBesideTheOtherAlone) {
  Machine machine = machine_of(10, 20, 100);
  machine.h2d_both_bytes_per_second = 8;
  machine.d2h_both_bytes_per_second = 30;  // no more than alone
  const LaneSpeeds speeds(machine);
  EXPECT_TRUE(speeds.shared());
  EXPECT_EQ(speeds.of(in, LaneRole::h2d), 1);
  EXPECT_EQ(speeds.of(in | compute | host, LaneRole::h2d), 1);
  EXPECT_EQ(speeds.of(in | out, LaneRole::h2d), 0.8);
  EXPECT_EQ(speeds.of(in | out, LaneRole::d2h), 1);
}

TEST(LaneSpeeds, HostMemoryGoesRoundInEqualPartsAndWhatIsLeftOverToWhoCanUseIt) {
  Machine machine = machine_of(10, 40, 100);
  machine.host_total_bytes_per_second = 100;
  const LaneSpeeds speeds(machine);
  EXPECT_EQ(speeds.of(host, LaneRole::host), 1);
  EXPECT_EQ(speeds.of(in | out, LaneRole::d2h), 1);
  EXPECT_DOUBLE_EQ(speeds.of(in | out | host, LaneRole::h2d), 1);
  EXPECT_DOUBLE_EQ(speeds.of(in | out | host, LaneRole::d2h), 1);
  EXPECT_DOUBLE_EQ(speeds.of(in | out | host, LaneRole::host), 0.5);
  machine.host_total_bytes_per_second = 60;
  const LaneSpeeds less(machine);
  EXPECT_DOUBLE_EQ(less.of(in | out | host, LaneRole::h2d), 1);
  EXPECT_DOUBLE_EQ(less.of(in | out | host, LaneRole::d2h), 0.625);
  EXPECT_DOUBLE_EQ(less.of(in | out | host, LaneRole::host), 0.25);
}

TEST(LaneSpeeds, CoresThatComputeAlsoCopyAndUpdate) {
  Machine machine = machine_of(10, 10, 100);
  machine.compute_beside_copy = 0.5;
  machine.compute_beside_host = 0.75;
  machine.host_beside_compute = 0.25;
  const LaneSpeeds speeds(machine);
  EXPECT_EQ(speeds.of(compute, LaneRole::compute), 1);
  EXPECT_EQ(speeds.of(compute | in, LaneRole::compute), 0.5);
  EXPECT_EQ(speeds.of(compute | in | out | host, LaneRole::compute), 0.1875);
  EXPECT_EQ(speeds.of(host, LaneRole::host), 1);
  EXPECT_EQ(speeds.of(compute | host, LaneRole::host), 0.25);
}

TEST(LaneSpeeds, PeersBytesHaveAPartOfBothWaysOfTheLinkTheyPassThrough) {
  Machine machine = machine_of(10, 20, 100);
  machine.peer.bytes_per_second = 8;
  EXPECT_FALSE(LaneSpeeds(machine).shared()) << "on links of their own";
  machine.peer_path = PeerPath::link;
  const LaneSpeeds speeds(machine);
  EXPECT_EQ(speeds.of(peer, LaneRole::peer), 1);
  EXPECT_DOUBLE_EQ(speeds.of(in | peer, LaneRole::peer), 5. / 8);
  EXPECT_DOUBLE_EQ(speeds.of(in | peer, LaneRole::h2d), 0.5);
  EXPECT_DOUBLE_EQ(speeds.of(out | peer, LaneRole::peer), 1);
  EXPECT_DOUBLE_EQ(speeds.of(out | peer, LaneRole::d2h), 12. / 20);
  EXPECT_DOUBLE_EQ(speeds.of(in | out | peer, LaneRole::peer), 5. / 8);
  EXPECT_DOUBLE_EQ(speeds.of(in | out | peer, LaneRole::d2h), 15. / 20) << "what in leaves to peers, out has";
  machine.h2d_both_bytes_per_second = machine.d2h_both_bytes_per_second = 6;
  EXPECT_DOUBLE_EQ(LaneSpeeds(machine).of(peer, LaneRole::peer), 6. / 8) << "they go both ways";
  EXPECT_DOUBLE_EQ(LaneSpeeds(machine).of(in | peer, LaneRole::h2d), 0.3);
}

TEST(LaneSpeeds, PeersWhoseBytesTakeNoTimeTakeNothingOfTheLink) {
  Machine machine = machine_of(10, 20, 100);
  machine.h2d_both_bytes_per_second = 5;
  machine.peer.bytes_per_second = std::numeric_limits<double>::infinity();
  machine.peer_path = PeerPath::link;
  const LaneSpeeds speeds(machine);
  EXPECT_TRUE(speeds.shared());
  EXPECT_EQ(speeds.of(in | peer, LaneRole::h2d), 1);
  EXPECT_EQ(speeds.of(in | out | peer, LaneRole::h2d), 0.5);
}

TEST(LaneSpeeds, PeersBytesInHostMemoryAreWrittenAndRead) {
  Machine machine = machine_of(100, 100, 100);
  machine.peer.bytes_per_second = 50;
  machine.peer_path = PeerPath::host_memory;
  machine.host_total_bytes_per_second = 120;
  const LaneSpeeds speeds(machine);
  EXPECT_EQ(speeds.of(peer, LaneRole::peer), 1);
  EXPECT_EQ(speeds.of(host, LaneRole::host), 1);
  EXPECT_DOUBLE_EQ(speeds.of(host | peer, LaneRole::peer), 40. / 50);
  EXPECT_DOUBLE_EQ(speeds.of(host | peer, LaneRole::host), 0.4);
  machine.peer_path = PeerPath::link;
  EXPECT_EQ(LaneSpeeds(machine).of(host | peer, LaneRole::host), 1);
}

TEST(LaneSpeeds, RatesThatAreNoPositiveNumbersAreNotShared) {
  Machine machine;
  machine.h2d_both_bytes_per_second = 0;
  EXPECT_FALSE(LaneSpeeds(machine).shared());
  machine.h2d_both_bytes_per_second = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(LaneSpeeds(machine).shared());
  machine.h2d_both_bytes_per_second = 1;
  EXPECT_TRUE(LaneSpeeds(machine).shared());
  machine.compute_beside_copy = -1;
  EXPECT_FALSE(LaneSpeeds(machine).shared());
}

}  // namespace
}  // namespace stowage
