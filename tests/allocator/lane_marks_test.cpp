#include "allocator/lane_marks.h"

#include <gtest/gtest.h>

#include "stowage/simulated_device.h"
#include "tests/allocator/device_decorator.h"

namespace stowage::caching {
namespace {

class LaneMarksTest : public testing::Test {
 protected:
  std::unique_ptr<SimulatedDevice> simulated = open_simulated_device({.executor = Executor::virtual_time});
  DeviceDecorator device{*simulated};
  Lane lane{device, LaneRole::compute}, other{device, LaneRole::compute};
  LaneClock clock{lane.id(), {}};
  LaneMarks marks{device, clock};
};

TEST_F(LaneMarksTest, AReleaseHasPassedOnceAMarkBehindItHas) {
  const Tag first = marks.next_release();
  EXPECT_TRUE(marks.poll());
  EXPECT_FALSE(first.passed());
  EXPECT_TRUE(marks.mark());
  const Tag second = marks.next_release();
  EXPECT_TRUE(marks.poll());
  EXPECT_TRUE(first.passed());
  EXPECT_FALSE(second.passed());
  EXPECT_TRUE(marks.synchronise());
  EXPECT_TRUE(second.passed());
}

TEST_F(LaneMarksTest, MarksNothingTwice) {
  marks.next_release();
  marks.mark();
  const std::uint64_t calls = simulated->counters().calls;
  marks.mark();
  EXPECT_EQ(simulated->counters().calls, calls);
  marks.poll();
  const std::uint64_t after = simulated->counters().calls;
  marks.mark();
  marks.poll();
  EXPECT_EQ(simulated->counters().calls, after);
}

TEST_F(LaneMarksTest, KeepsAFewMarksAndMovesTheLatestOn) {
  device.is_slow = [] { return true; };
  std::vector<Tag> tags;
  for (std::size_t i = 0; i < 3 * LaneMarks::most; ++i) {
    tags.push_back(marks.next_release());
    EXPECT_TRUE(marks.mark());
  }
  EXPECT_TRUE(marks.is_full());
  EXPECT_TRUE(marks.hold(other.id(), tags.back().count));
  EXPECT_EQ(device.waits, 1u);
  device.is_slow = nullptr;
  EXPECT_TRUE(marks.poll());
  for (const Tag& tag : tags) EXPECT_TRUE(tag.passed());
  EXPECT_TRUE(marks.hold(other.id(), tags.back().count));
  EXPECT_EQ(device.waits, 1u);  // none is needed any more
}

TEST_F(LaneMarksTest, AFailureChangesNothingAndIsKept) {
  const Tag tag = marks.next_release();
  device.fails = [](const std::string&) { return true; };
  EXPECT_FALSE(marks.mark());
  EXPECT_FALSE(marks.hold(other.id(), tag.count));
  EXPECT_FALSE(marks.synchronise());
  EXPECT_FALSE(tag.passed());
  EXPECT_NE(marks.take_failure(), nullptr);
  EXPECT_EQ(marks.take_failure(), nullptr);
  device.fails = nullptr;
  EXPECT_TRUE(marks.synchronise());
  EXPECT_TRUE(tag.passed());
}

TEST_F(LaneMarksTest, RecordsAndAsksNothingWhileTheLaneIsCaptured) {
  marks.next_release();
  EXPECT_TRUE(marks.mark());
  const Tag second = marks.next_release();
  device.captures = [](LaneId) { return true; };
  const std::uint64_t calls = simulated->counters().calls;
  EXPECT_FALSE(marks.mark());
  EXPECT_FALSE(marks.poll());
  EXPECT_FALSE(marks.hold(other.id(), second.count));
  EXPECT_FALSE(marks.synchronise());
  EXPECT_EQ(simulated->counters().calls, calls);
  device.captures = nullptr;
  EXPECT_TRUE(marks.synchronise());
  EXPECT_TRUE(second.passed());
}

TEST_F(LaneMarksTest, AnEventThatACaptureTookInIsNeverAsked) {
  const Tag tag = marks.next_release();
  int asked = 0;
  device.captures = [&](LaneId) { return ++asked > 1; };  // another thread begins it before the record
  EXPECT_FALSE(marks.mark());
  device.captures = nullptr;
  EXPECT_TRUE(marks.poll());
  EXPECT_EQ(device.queries, 0u);
  EXPECT_FALSE(tag.passed());
  EXPECT_TRUE(marks.mark());  // with the same event, recorded anew
  EXPECT_TRUE(marks.poll());
  EXPECT_TRUE(tag.passed());
}

}  // namespace
}  // namespace stowage::caching
