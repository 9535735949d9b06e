#include "offload/plan/problem/lane_speeds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "offload/plan/problem/lane_speeds.h"
#include "tests/offload/plan/schedule/slow_simulation.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

TEST(LaneSpeeds, AreTheRatesOfTheSlowSimulation) {
  int slower = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    const Machine machine = seed % 2 == 0 ? testing::shared_machine(seed) : testing::machine_with_peers(seed);
    const LaneSpeeds speeds(machine);
    const double alone[] = {1, machine.h2d.bytes_per_second, machine.d2h.bytes_per_second,
                            machine.host_bytes_per_second, machine.peer.bytes_per_second};
    for (LaneMask working = 0; working < LaneMask{1} << lane_roles; ++working) {
      std::vector<bool> moves;
      for (std::size_t lane = 0; lane < lane_roles; ++lane) moves.push_back((working >> lane & 1U) != 0);
      const std::vector<double> rates = test::slow_rates(machine, moves);
      for (std::size_t lane = 0; lane < lane_roles; ++lane) {
        if (!moves[lane] || !std::isfinite(alone[lane])) continue;
        const double speed = speeds.of(working, static_cast<LaneRole>(lane));
        EXPECT_NEAR(speed, rates[lane] / alone[lane], 1e-6) << "lane " << lane << " of " << +working;
        slower += speed < 0.9 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(slower, 100);
}

TEST(LaneSpeeds, PeersWhoseBytesTakeNoTimeTakeNothingOfTheLink) {
  Machine machine;
  machine.h2d.bytes_per_second = 10;
  machine.h2d_both_bytes_per_second = 5;
  machine.peer.bytes_per_second = std::numeric_limits<double>::infinity();
  machine.peer_path = PeerPath::link;
  const LaneMask in = mask_of(LaneRole::h2d), out = mask_of(LaneRole::d2h), peer = mask_of(LaneRole::peer);
  EXPECT_EQ(LaneSpeeds(machine).of(in | peer, LaneRole::h2d), 1);
  EXPECT_EQ(LaneSpeeds(machine).of(in | out | peer, LaneRole::h2d), 0.5);
}

TEST(LaneSpeeds, RatesThatAreNoPositiveNumbersAreNotShared) {
  EXPECT_FALSE(LaneSpeeds(Machine{}).shared());
  EXPECT_EQ(sharing_of(Machine{}).of_in, 0);
  Machine machine;
  for (const double rate : {0.0, std::numeric_limits<double>::quiet_NaN()}) {
    machine.h2d_both_bytes_per_second = rate;
    EXPECT_FALSE(LaneSpeeds(machine).shared());
  }
  machine.h2d_both_bytes_per_second = 1;
  EXPECT_TRUE(LaneSpeeds(machine).shared());
  machine.compute_beside_copy = -1;
  EXPECT_FALSE(LaneSpeeds(machine).shared());
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
