#include "src/device/simulated/execution_lane.h"

#include <gtest/gtest.h>

#include <thread>

namespace stowage::simulated {
namespace {

Task numbered(Bytes number) {
  Task task;
  task.bytes = number;
  return task;
}

TEST(LaneQueue, KeepsOrderWhileItWrapsAndGrows) {
  LaneQueue queue;
  Bytes pushed = 0, popped = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 60; ++i) queue.push(numbered(pushed++));
    for (int i = 0; i < 9; ++i) ASSERT_EQ(queue.pop()->bytes, popped++);
  }
  ASSERT_GT(pushed - popped, 2 * LaneQueue::initial_capacity);
  queue.close();
  while (const auto task = queue.pop()) ASSERT_EQ(task->bytes, popped++);
  EXPECT_EQ(popped, pushed);
}

TEST(LaneQueue, HandsOverBetweenThreads) {
  LaneQueue queue;
  Bytes received = 0;
  bool in_order = true;
  std::thread consumer([&] {
    while (const auto task = queue.pop()) in_order &= task->bytes == received++;
  });
  for (Bytes i = 0; i < 5000; ++i) queue.push(numbered(i));
  queue.close();
  consumer.join();
  EXPECT_TRUE(in_order);
  EXPECT_EQ(received, 5000u);
}

}  // namespace
}  // namespace stowage::simulated
