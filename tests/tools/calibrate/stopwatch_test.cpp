#include "tools/calibrate/stopwatch.h"

#include <gtest/gtest.h>

#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

TEST(Stopwatch, MedianIsTheMiddleValue) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 2);
}

TEST(Stopwatch, ReadsTheDevicesOwnTimeAndDropsTheFirst) {
  const auto device = test::open_virtual_device(test::odd_machine());
  const Lane lane(*device, LaneRole::compute);
  Stopwatch watch(*device, lane.id());
  int calls = 0;
  auto enqueue = [&] {
    const double seconds = calls++ == 0 ? 100 : calls;
    device->launch(lane.id(), {.name = "wait",
                               .function = [](void*) {},
                               .context = nullptr,
                               .accesses = {},
                               .modelled_seconds = seconds});
  };
  EXPECT_DOUBLE_EQ(watch.median_seconds(3, enqueue), 3);  // of 2, 3 and 4
  EXPECT_EQ(calls, 4);
}

}  // namespace
}  // namespace stowage
