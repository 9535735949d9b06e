#include "stowage/stream_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "stowage/error.h"
#include "stowage/simulated_device.h"
#include "tests/allocator/adopting_device.h"

namespace stowage {
namespace {

class StreamLanesTest : public testing::Test {
 protected:
  std::unique_ptr<SimulatedDevice> simulated = open_simulated_device({.executor = Executor::virtual_time});
  AdoptingDevice device{*simulated};
  void* const a = reinterpret_cast<void*>(0x100);
};

TEST_F(StreamLanesTest, AStreamHasOneLane) {
  StreamLanes lanes(device);
  const LaneId lane = lanes.lane(a);
  EXPECT_EQ(lanes.lane(a), lane);
  EXPECT_NE(lanes.lane(nullptr), lane);
  EXPECT_EQ(lanes.stream(lane), a);
  EXPECT_EQ(lanes.stream(lane + 100), nullptr);
  EXPECT_EQ(device.adopted.size(), 2u);
  EXPECT_EQ(lanes.lanes().size(), 2u);
}

TEST_F(StreamLanesTest, ForgetsAStreamThatEnds) {
  StreamLanes lanes(device);
  LaneId found = 77;
  EXPECT_FALSE(lanes.find(a, found));
  const LaneId lane = lanes.lane(a);
  EXPECT_TRUE(lanes.find(a, found));
  EXPECT_EQ(found, lane);
  lanes.forget(a);
  lanes.forget(a);
  EXPECT_FALSE(lanes.find(a, found));
  EXPECT_THROW(simulated->synchronise_lane(lane), InvalidInput);
}

TEST_F(StreamLanesTest, DestroysItsLanes) {
  LaneId lane = 0;
  {
    StreamLanes lanes(device);
    lane = lanes.lane(a);
    simulated->synchronise_lane(lane);
  }
  EXPECT_THROW(simulated->synchronise_lane(lane), InvalidInput);
}

TEST_F(StreamLanesTest, ADeviceWithoutStreamsRefuses) {
  StreamLanes lanes(*simulated);
  EXPECT_THROW(lanes.lane(a), InvalidInput);
}

}  // namespace
}  // namespace stowage
