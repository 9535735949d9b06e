#include "src/device/cuda/host_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace stowage::cuda {
namespace {

class HostWorkTest : public testing::Test {
 protected:
  HostWorkTest() { order->add_lane(0); }

  static Launch counting(int& counter) {
    Launch launch;
    launch.name = "count";
    launch.function = [](void* context) { ++*static_cast<int*>(context); };
    launch.context = &counter;
    return launch;
  }
  static Launch failing() {
    Launch launch;
    launch.name = "unlucky";
    launch.function = [](void*) { throw std::runtime_error("no luck"); };
    return launch;
  }

  std::shared_ptr<HostOrder> order = std::make_shared<HostOrder>();
  HostWork work{order, 0, "host lane 0"};
};

TEST_F(HostWorkTest, RunsWhatItIsGiven) {
  int count = 0;
  for (int i = 0; i < 3; ++i) HostWork::run(work.prepare(counting(count)));
  EXPECT_EQ(count, 3);
}

TEST_F(HostWorkTest, KeepsWhatIsThrownAndSkipsTheRest) {
  int count = 0;
  void* const unlucky = work.prepare(failing());
  void* const behind = work.prepare(counting(count));
  HostWork::run(unlucky);
  HostWork::run(behind);
  EXPECT_EQ(count, 0);
  const auto failure = order->take(0);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->work, "unlucky");
  EXPECT_THAT(failure->message, testing::AllOf(testing::HasSubstr("launch 'unlucky' on host lane 0"),
                                               testing::HasSubstr("no luck")));
  HostWork::run(work.prepare(counting(count)));
  EXPECT_EQ(count, 1);
}

TEST_F(HostWorkTest, KeepsAThrowOfAnyType) {
  Launch launch;
  launch.name = "odd";
  launch.function = [](void*) { throw 7; };
  HostWork::run(work.prepare(launch));
  ASSERT_NE(order->take(0), nullptr);
}

TEST_F(HostWorkTest, UsesItemsAgain) {
  int count = 0;
  std::set<void*> items;
  for (int i = 0; i < 10; ++i) {
    void* const item = work.prepare(counting(count));
    items.insert(item);
    HostWork::run(item);
  }
  work.cancel(work.prepare(counting(count)));
  EXPECT_EQ(items.size(), 1u);
  EXPECT_EQ(count, 10);
}

TEST_F(HostWorkTest, RunsOnAnotherThreadThanItIsPreparedOn) {
  int count = 0;
  std::vector<void*> items;
  for (int i = 0; i < 100; ++i) items.push_back(work.prepare(counting(count)));
  std::thread runner([&] {
    for (void* const item : items) HostWork::run(item);
  });
  int others = 0;
  for (int i = 0; i < 100; ++i) work.cancel(work.prepare(counting(others)));
  runner.join();
  EXPECT_EQ(count, 100);
}

}  // namespace
}  // namespace stowage::cuda
