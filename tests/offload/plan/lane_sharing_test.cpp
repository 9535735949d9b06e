#include "offload/plan/lane_sharing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "offload/plan/lane_speeds.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

TEST(LaneSharing, IsNothingWhereLanesDoNotSlowEachOther) {
  const LaneSharing sharing = sharing_of(Machine{});
  EXPECT_EQ(sharing.of_in, 0);
  EXPECT_EQ(sharing.of_out, 0);
  EXPECT_EQ(sharing.host_seconds_per_byte, 0);
}

// At three quarters of its speed beside the other direction, a second of one costs the other a third.
TEST(LaneSharing, OfDirectionsIsWhatOneLeavesToTheOther) {
  Machine machine;
  machine.h2d = machine.d2h = {.bytes_per_second = 8e9, .latency_seconds = 0, .throttled = true};
  machine.h2d_both_bytes_per_second = machine.d2h_both_bytes_per_second = 6e9;
  const LaneSharing sharing = sharing_of(machine);
  EXPECT_NEAR(sharing.of_in, 1. / 3, 1e-12);
  EXPECT_NEAR(sharing.of_out, 1. / 3, 1e-12);
  EXPECT_NEAR(sharing.host_seconds_per_byte, 0, 1e-20);
}

TEST(LaneSharing, OfHostMemoryIsTheTimeOfACopysBytesThere) {
  Machine machine;
  machine.h2d = machine.d2h = {.bytes_per_second = 8e9, .latency_seconds = 0, .throttled = true};
  machine.host_bytes_per_second = machine.host_total_bytes_per_second = 20e9;
  EXPECT_NEAR(sharing_of(machine).host_seconds_per_byte, 1 / 20e9, 1e-20);
}

// Over one link a second of peers' bytes costs each way a whole one.
TEST(LaneSharing, OfPeersIsTheTimeOnTheLinkTheyPassThrough) {
  Machine machine;
  machine.h2d = machine.d2h =
      machine.peer = {.bytes_per_second = 8e9, .latency_seconds = 0, .throttled = true};
  EXPECT_EQ(sharing_of(machine).peer_to_h2d, 0);
  machine.peer_path = PeerPath::host_memory;
  machine.host_bytes_per_second = machine.host_total_bytes_per_second = 32e9;
  const LaneSharing sharing = sharing_of(machine);
  EXPECT_NEAR(sharing.peer_to_h2d, 1, 1e-12);
  EXPECT_NEAR(sharing.peer_to_d2h, 1, 1e-12);
  EXPECT_NEAR(sharing.peer_to_host, 0.5, 1e-12) << "16 of the 32 GB/s";
  EXPECT_EQ(sharing.of_in, 0);
}

// Whichever lanes work, no lane's time and these shares of the others' come to more than the time that
// passes; and larger shares would, unless a second of one direction costs the other a whole one.
TEST(LaneSharing, NeverCountsMoreThanTheTimeThatPasses) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Machine machine = testing::shared_machine(seed);
    machine.peer.bytes_per_second = machine.h2d.bytes_per_second * (seed % 5 == 0 ? 0.1 : 0.8);
    machine.peer_path = static_cast<PeerPath>(seed % 3);
    const LaneSpeeds speeds(machine);
    const LaneSharing sharing = sharing_of(machine);
    double most_in = 0, most_out = 0, most_host = 0;
    for (LaneMask working = 1; working < LaneMask{1} << lane_roles; ++working) {
      const auto speed = [&](LaneRole lane) {
        return (working & mask_of(lane)) != 0 ? speeds.of(working, lane) : 0.0;
      };
      const double in = speed(LaneRole::h2d), out = speed(LaneRole::d2h);
      const double copied = in * machine.h2d.bytes_per_second + out * machine.d2h.bytes_per_second;
      const double with_out = in + sharing.of_out * out, with_in = out + sharing.of_in * in;
      const double at_host = speed(LaneRole::host) + sharing.host_seconds_per_byte * copied;
      const double peer = speed(LaneRole::peer);
      for (const double all : {with_out + sharing.peer_to_h2d * peer, with_in + sharing.peer_to_d2h * peer,
                               at_host + sharing.peer_to_host * peer})
        EXPECT_LE(all, 1 + 1e-9) << working;
      if (peer > 0) continue;
      most_in = std::max(most_in, with_out);
      most_out = std::max(most_out, with_in);
      most_host = std::max(most_host, at_host);
    }
    EXPECT_TRUE(most_in > 1 - 1e-9 || sharing.of_out == 1);
    EXPECT_TRUE(most_out > 1 - 1e-9 || sharing.of_in == 1);
    EXPECT_GT(most_host, 1 - 1e-9);
  }
}

}  // namespace
}  // namespace stowage
