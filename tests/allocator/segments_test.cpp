#include "allocator/segments.h"

#include <gtest/gtest.h>

#include "stowage/simulated_device.h"

namespace stowage::caching {
namespace {

// So large that no test of the allocator maps it: the granules of one piece go together.
TEST(Segments, ALargeRunLeavesInPieces) {
  const auto large =
      open_simulated_device({.capacity = 1_GiB, .executor = Executor::virtual_time, .poison = Poison::none});
  Segments segments(*large, 1_GiB);
  std::vector<Interval> left;
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

}  // namespace
}  // namespace stowage::caching
