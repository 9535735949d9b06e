#include "allocator/segments.h"

#include <gtest/gtest.h>

#include "stowage/error.h"
#include "stowage/simulated_device.h"
#include "tests/allocator/device_decorator.h"

namespace stowage::caching {
namespace {

class SegmentsTest : public testing::Test {
 protected:
  std::unique_ptr<SimulatedDevice> simulated =
      open_simulated_device({.capacity = 64_MiB, .executor = Executor::virtual_time});
  DeviceDecorator device{*simulated};
  std::vector<Interval> left;
  Bytes used() const { return 64_MiB - simulated->memory_info().free; }
};

TEST_F(SegmentsTest, MapsEachRunAtOnceAndUnmapsAnyOfASmallOne) {
  Segments segments(device, 1_GiB);
  EXPECT_EQ(segments.granule(), 2_MiB);
  segments.map({{3, 24}, {100, 101}}, left);
  EXPECT_EQ(segments.counters().maps, 2u);
  EXPECT_EQ(segments.mapped(), 22u);
  EXPECT_EQ(used(), 44_MiB);
  EXPECT_TRUE(segments.unmap({{3, 20}}).empty());
  EXPECT_EQ(device.unmaps, 1u);
  EXPECT_EQ(used(), 10_MiB);
}

TEST_F(SegmentsTest, ALargeRunLeavesInPieces) {
  const auto large =
      open_simulated_device({.capacity = 1_GiB, .executor = Executor::virtual_time, .poison = Poison::none});
  Segments segments(*large, 1_GiB);
  segments.map({{0, 258}}, left);  // 64 pieces of 4 granules and one of 2
  EXPECT_EQ(segments.pieces().of(5).begin, 4u);
  EXPECT_EQ(segments.unmap({{2, 4}}).size(), 1u);
  EXPECT_EQ(segments.mapped(), 258u);
  EXPECT_TRUE(segments.unmap({{4, 12}, {256, 258}}).empty());
  EXPECT_EQ(segments.mapped(), 248u);
  EXPECT_EQ(segments.pieces().of(5).length(), 1u);
  segments.map({{5, 6}}, left);
  EXPECT_TRUE(segments.unmap({{0, 4}, {5, 6}, {12, 256}}).empty());
}

TEST_F(SegmentsTest, AMapThatFailsHalfWayIsUndone) {
  Segments segments(device, 1_GiB);
  EXPECT_THROW(segments.map({{0, 5}, {10, 50}}, left), OutOfMemory);
  EXPECT_TRUE(left.empty());
  EXPECT_EQ(segments.mapped(), 0u);
  EXPECT_EQ(used(), 0u);
}

TEST_F(SegmentsTest, SaysWhatCouldNotBeUndone) {
  Segments segments(device, 1_GiB);
  device.fails = [](const std::string& call) { return call == "unmap"; };
  EXPECT_THROW(segments.map({{0, 2}, {10, 50}}, left), OutOfMemory);
  Bytes granules = 0;
  for (const Interval& run : left) granules += run.length();
  EXPECT_EQ(granules, segments.mapped());
  EXPECT_EQ(used(), granules * 2_MiB);
  EXPECT_GT(granules, 0u);
}

TEST_F(SegmentsTest, GivesAllBackAtItsEnd) {
  {
    Segments segments(device, 1_GiB);
    segments.map({{7, 9}}, left);
  }
  EXPECT_EQ(used(), 0u);
}

}  // namespace
}  // namespace stowage::caching
