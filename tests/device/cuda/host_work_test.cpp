#include "src/device/cuda/host_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
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

  // As the stream does.
  void reach(std::uint32_t number) const { turns->reached = number; }
  void wait_for(std::uint32_t number) const {
    while (turns->finished != number) std::this_thread::yield();
  }
  HostWork::Item* run(HostWork& by, const Launch& launch) const {
    HostWork::Item& item = by.prepare(launch);
    submit(by, item);
    reach(turn);
    wait_for(turn);
    return &item;
  }

  // As a turn of its own, whose number is `turn` then.
  void submit(HostWork& by, HostWork::Item& item) const {
    turn = by.next_turn();
    by.submit(item);
  }

  mutable std::uint32_t turn = 0;
  std::shared_ptr<HostOrder> order = std::make_shared<HostOrder>();
  std::shared_ptr<HostTurns> turns = std::make_shared<HostTurns>();
  HostWork work{order, 0, "host lane 0", turns};
};

TEST_F(HostWorkTest, RunsEachFunctionAtItsTurn) {
  std::atomic<int> count = 0;
  for (int i = 0; i < 3; ++i) submit(work, work.prepare(counting(count)));
  reach(turn - 2);
  wait_for(turn - 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(count, 1);
  reach(turn);
  wait_for(turn);
  EXPECT_EQ(count, 3);
}

TEST_F(HostWorkTest, FunctionsShareATurnUntilTheStreamDoesSomethingElse) {
  std::atomic<int> count = 0;
  EXPECT_FALSE(work.join(work.prepare(counting(count)))) << "there is no turn yet";
  submit(work, work.prepare(counting(count)));
  EXPECT_TRUE(work.join(work.prepare(counting(count))));
  work.separate();
  EXPECT_FALSE(work.join(work.prepare(counting(count))));
  reach(turn);
  wait_for(turn);
  EXPECT_EQ(count, 2);
  submit(work, work.prepare(counting(count)));
  reach(turn);
  wait_for(turn);
  EXPECT_FALSE(work.join(work.prepare(counting(count)))) << "the turn has ended";
}

TEST_F(HostWorkTest, NumbersGoOnPastTheLargest) {
  std::atomic<int> count = 0;
  turns->reached = turns->finished = 0xfffffffeU;
  HostWork late(order, 0, "host lane 0", turns);
  for (int i = 0; i < 4; ++i) run(late, counting(count));
  EXPECT_EQ(turns->finished, 2U);
  EXPECT_EQ(count, 4);
}

TEST_F(HostWorkTest, WhatNeverComesToItsTurnDoesNotRun) {
  std::atomic<int> count = 0;
  {
    HostWork short_lived(order, 0, "host lane 0", turns);
    submit(short_lived, short_lived.prepare(counting(count)));
  }
  EXPECT_EQ(count, 0);
  HostWork next(order, 0, "host lane 0", turns);
  run(next, counting(count));
  EXPECT_EQ(count, 1);
}

TEST_F(HostWorkTest, KeepsWhatIsThrownAndSkipsTheRest) {
  std::atomic<int> count = 0;
  HostWork::Item& unlucky = work.prepare(failing());
  HostWork::Item& behind = work.prepare(counting(count));
  submit(work, unlucky);
  submit(work, behind);
  reach(turn);
  wait_for(turn);
  EXPECT_EQ(count, 0);
  const auto failure = order->take(0);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->work, "unlucky");
  EXPECT_THAT(failure->message, testing::AllOf(testing::HasSubstr("launch 'unlucky' on host lane 0"),
                                               testing::HasSubstr("no luck")));
  run(work, counting(count));
  EXPECT_EQ(count, 1);
}

TEST_F(HostWorkTest, KeepsAThrowOfAnyType) {
  Launch launch;
  launch.name = "odd";
  launch.function = [](void*) { throw 7; };
  run(work, launch);
  ASSERT_NE(order->take(0), nullptr);
}

TEST_F(HostWorkTest, UsesItemsAgain) {
  std::atomic<int> count = 0;
  std::set<void*> items;
  for (int i = 0; i < 10; ++i) items.insert(run(work, counting(count)));
  work.cancel(work.prepare(counting(count)));
  EXPECT_EQ(items.size(), 1u);
  EXPECT_EQ(count, 10);
}

TEST_F(HostWorkTest, RunsWhileMoreIsPrepared) {
  std::atomic<int> count = 0, others = 0;
  for (int i = 0; i < 100; ++i) {
    HostWork::Item& item = work.prepare(counting(count));
    if (!work.join(item)) submit(work, item);
    reach(turn);
    if (i % 2 == 0) work.cancel(work.prepare(counting(others)));
  }
  wait_for(turn);
  EXPECT_EQ(count, 100);
  EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace stowage::cuda
