#include "src/device/simulated/wire.h"

#include <gtest/gtest.h>

#include <thread>

namespace stowage::simulated {
namespace {

// Alone a byte in a second each way, beside the other one half and a quarter.
Wire wire() { return {{0, 1, 0.5}, {0, 1, 0.25}}; }

TEST(Wire, ACopyAloneTakesItsLatencyAndItsBytes) {
  Wire wire({2, 4, 1}, {0, 1, 1});
  const auto transfer = wire.begin(LaneRole::h2d, 10, 8);
  EXPECT_EQ(wire.end(transfer, 13.9), 14);
  EXPECT_EQ(wire.end(transfer, 14), 14);
  const auto next = wire.begin(LaneRole::h2d, 14, 4);
  EXPECT_EQ(next, transfer) << "ids are used again";
  EXPECT_EQ(wire.end(next, 20), 17);
}

TEST(Wire, CopiesThatCrossSlowEachOtherWhileBothMove) {
  Wire wire = simulated::wire();
  const auto in = wire.begin(LaneRole::h2d, 0, 4);
  EXPECT_EQ(wire.end(in, 1), 4) << "nothing else is known yet";
  const auto out = wire.begin(LaneRole::d2h, 2, 4);
  EXPECT_EQ(wire.end(in, 4), 6) << "2 bytes are left at time 2, and go at half the rate";
  EXPECT_EQ(wire.end(in, 6), 6);
  EXPECT_EQ(wire.end(out, 6), 9) << "1 byte in 4 seconds, then 3 alone";
  EXPECT_EQ(wire.end(out, 9), 9);
}

TEST(Wire, ALatencySlowsNobody) {
  Wire wire({3, 1, 0.5}, {0, 1, 0.5});
  const auto out = wire.begin(LaneRole::d2h, 0, 4);
  const auto in = wire.begin(LaneRole::h2d, 0, 4);
  EXPECT_EQ(wire.end(out, 0), 5) << "3 bytes alone, one at half the rate";
  EXPECT_EQ(wire.end(in, 0), 8) << "one in 2 seconds, 3 alone";
}

TEST(Wire, CopiesOfOneDirectionDoNotSlowEachOther) {
  Wire wire = simulated::wire();
  const auto one = wire.begin(LaneRole::h2d, 0, 4);
  const auto other = wire.begin(LaneRole::h2d, 0, 2);
  EXPECT_EQ(wire.end(one, 4), 4);
  EXPECT_EQ(wire.end(other, 4), 2);
}

TEST(Wire, ThereIsNoneWhereNothingIsSlowed) {
  SimulatedOptions options;
  EXPECT_FALSE(wire_for(options));
  options.h2d = options.d2h = {1e9, 1e-6, true};
  EXPECT_FALSE(wire_for(options));
  options.h2d_both_bytes_per_second = 2e9;
  EXPECT_FALSE(wire_for(options));
  options.d2h_both_bytes_per_second = 0.5e9;
  EXPECT_TRUE(wire_for(options));
  options.h2d.throttled = false;
  EXPECT_FALSE(wire_for(options));
}

// Whether the copies meet is the scheduler's choice; one after another they take as long.
TEST(Wire, CopiesOfADeviceThatCrossTakeAtLeastAsLongAsTheOptionsSay) {
  constexpr Bytes size = 1'000'000;
  const auto device = open_simulated_device({.h2d = {1e8, 0, true},
                                             .d2h = {1e8, 0, true},
                                             .h2d_both_bytes_per_second = 0.5e8,
                                             .d2h_both_bytes_per_second = 0.5e8});
  const Lane compute(*device, LaneRole::compute), in(*device, LaneRole::h2d), out(*device, LaneRole::d2h);
  const DeviceMemory here(*device, MemoryKind::pinned, 2 * size),
      there(*device, MemoryKind::device, 2 * size);
  const Event begin(*device), in_end(*device), out_end(*device);
  std::fill_n(here.data(), 2 * size, std::byte{1});
  device->copy(in.id(), there.data() + size, here.data() + size, size, "fill");
  device->synchronise_lane(in.id());
  device->record(begin.id(), compute.id());
  for (const Lane* lane : {&in, &out}) device->wait(lane->id(), begin.id());
  device->copy(in.id(), there.data(), here.data(), size, "in");
  device->record(in_end.id(), in.id());
  device->copy(out.id(), here.data() + size, there.data() + size, size, "out");
  device->record(out_end.id(), out.id());
  for (const Event* end : {&in_end, &out_end}) device->synchronise(end->id());
  const double last = std::max(device->elapsed_seconds(begin.id(), in_end.id()),
                               device->elapsed_seconds(begin.id(), out_end.id()));
  EXPECT_GE(last, 0.02 * (1 - 1e-9)) << "0.01 where they did not slow each other";
}

}  // namespace
}  // namespace stowage::simulated
