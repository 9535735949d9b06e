// The flag of libstowage_plan.so, and its calls from several threads.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "stowage/c_plan.h"
#include "tests/support/trace_text.h"

namespace stowage {
namespace {

int status_of_a_plan() {
  static const std::string trace = test::trace_example(STOWAGE_ROOT);
  stowage_text* answer = nullptr;
  const int status =
      stowage_plan(trace.data(), trace.size(), R"({"machine": "rtx4090", "policy": "none"})", &answer);
  EXPECT_EQ(answer != nullptr, status == STOWAGE_OK);
  stowage_text_free(answer);
  return status;
}

TEST(CPlanStop, EndsCallsWhileItIsSet) {
  EXPECT_EQ(status_of_a_plan(), STOWAGE_OK);
  stowage_plan_stop(1);
  EXPECT_EQ(status_of_a_plan(), STOWAGE_STOPPED);
  EXPECT_STRNE(stowage_plan_last_error(), "");
  stowage_plan_stop(0);
  EXPECT_EQ(status_of_a_plan(), STOWAGE_OK);
  EXPECT_STREQ(stowage_plan_last_error(), "");
}

TEST(CPlanStop, EndsTheCallsOfAllThreads) {
  std::atomic<int> planned = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (status_of_a_plan() == STOWAGE_OK) ++planned;
    });
  while (planned < 6) std::this_thread::yield();
  stowage_plan_stop(1);
  for (std::thread& thread : threads) thread.join();
  stowage_plan_stop(0);
}

}  // namespace
}  // namespace stowage
