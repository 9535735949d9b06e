#include "src/device/cuda/host_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace stowage::cuda {
namespace {

class HostWorkTest : public testing::Test {
 protected:
  HostWorkTest() { order->add_lane(0); }

  static Launch counting(std::atomic<int>& counter) {
    Launch launch;
    launch.name = "count";
    launch.function = [](void* context) { ++*static_cast<std::atomic<int>*>(context); };
    launch.context = &counter;
    return launch;
  }
  static Launch failing() {
    Launch launch;
    launch.name = "unlucky";
    launch.function = [](void*) { throw std::runtime_error("no luck"); };
    return launch;
  }
  static void a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

  std::shared_ptr<HostOrder> order = std::make_shared<HostOrder>();
  std::shared_ptr<HostTurns> turns = std::make_shared<HostTurns>();
  HostWork work{order, 0, "host lane 0", turns};
};

TEST_F(HostWorkTest, RunsFunctionsInOrderAndCountsThem) {
  std::vector<int> ran;  // by the lane's thread alone
  struct Note {
    std::vector<int>* ran;
    int what;
  };
  std::vector<Note> notes;
  for (int i = 0; i < 100; ++i) notes.push_back({&ran, i});
  Launch launch;
  launch.name = "note";
  launch.function = [](void* context) {
    const Note& note = *static_cast<Note*>(context);
    note.ran->push_back(note.what);
  };
  for (Note& note : notes) {
    launch.context = &note;
    work.submit(launch);
  }
  work.finish();
  EXPECT_EQ(turns->finished, 100U);
  EXPECT_EQ(work.point(), 100U);
  ASSERT_EQ(ran.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST_F(HostWorkTest, AFunctionWaitsForItsMark) {
  std::atomic<int> count = 0;
  const std::uint32_t first = work.next_mark();
  work.await_mark(first);
  work.submit(counting(count));
  work.submit(counting(count));
  const std::uint32_t second = work.next_mark();
  work.await_mark(second);
  work.submit(counting(count));
  a_moment();
  EXPECT_EQ(count, 0);
  turns->reached = first;
  while (turns->finished != 2U) std::this_thread::yield();
  a_moment();
  EXPECT_EQ(count, 2);
  turns->reached = second;
  work.finish();
  EXPECT_EQ(count, 3);
}

TEST_F(HostWorkTest, AFunctionWaitsForAnotherLanes) {
  order->add_lane(1);
  const auto others = std::make_shared<HostTurns>();
  HostWork other(order, 1, "host lane 1", others);
  std::atomic<int> here = 0, there = 0;
  other.await_mark(other.next_mark());
  other.submit(counting(there));
  work.await_function(others, other.point());
  work.submit(counting(here));
  a_moment();
  EXPECT_EQ(here, 0);
  others->reached = 1;
  work.finish();
  EXPECT_EQ(here, 1);
  EXPECT_EQ(there, 1);
}

TEST_F(HostWorkTest, NumbersGoOnPastTheLargest) {
  std::atomic<int> count = 0;
  turns->reached = turns->finished = 0xfffffffeU;
  HostWork late(order, 0, "host lane 0", turns);
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t mark = late.next_mark();
    late.await_mark(mark);
    late.submit(counting(count));
    EXPECT_FALSE(turns->has_finished(late.point()));
    turns->reached = mark;
    late.finish();
  }
  EXPECT_EQ(turns->finished, 2U);
  EXPECT_EQ(count, 4);
}

// What is recorded behind a wait comes behind what was waited for, with a function between or not.
TEST_F(HostWorkTest, APointLiesBehindAllThatIsAwaited) {
  const std::uint32_t mark = work.next_mark();
  work.await_mark(mark);
  const std::uint32_t point = work.point();
  EXPECT_EQ(work.point(), point) << "nothing came between";
  a_moment();
  EXPECT_FALSE(turns->has_finished(point));
  turns->reached = mark;
  work.finish();
  EXPECT_TRUE(turns->has_finished(point));
}

TEST_F(HostWorkTest, StopsBehindTheFunctionThatRuns) {
  std::atomic<int> count = 0;
  for (int i = 0; i < 3; ++i) work.submit(counting(count));
  work.finish();
  work.await_mark(work.next_mark());
  work.submit(counting(count));
  work.stop();
  work.stop();
  EXPECT_EQ(count, 3);
}

TEST_F(HostWorkTest, WhatNeverComesToItsTurnDoesNotRun) {
  std::atomic<int> count = 0;
  {
    HostWork short_lived(order, 0, "host lane 0", turns);
    short_lived.await_mark(short_lived.next_mark());
    short_lived.submit(counting(count));
  }
  EXPECT_EQ(count, 0);
  HostWork next(order, 0, "host lane 0", turns);
  next.submit(counting(count));
  next.finish();
  EXPECT_EQ(count, 1);
}

TEST_F(HostWorkTest, KeepsWhatIsThrownAndSkipsTheRest) {
  std::atomic<int> count = 0;
  work.submit(failing());
  work.submit(counting(count));
  work.finish();
  EXPECT_EQ(count, 0);
  const auto failure = order->take(0);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->work, "unlucky");
  EXPECT_THAT(failure->message, testing::AllOf(testing::HasSubstr("launch 'unlucky' on host lane 0"),
                                               testing::HasSubstr("no luck")));
  work.submit(counting(count));
  work.finish();
  EXPECT_EQ(count, 1);
}

TEST_F(HostWorkTest, KeepsAThrowOfAnyType) {
  Launch launch;
  launch.name = "odd";
  launch.function = [](void*) { throw 7; };
  work.submit(launch);
  work.finish();
  ASSERT_NE(order->take(0), nullptr);
}

}  // namespace
}  // namespace stowage::cuda
