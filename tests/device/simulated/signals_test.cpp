#include "src/device/simulated/signals.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace stowage::simulated {
namespace {

TEST(Signals, CarryTimeAndFailure) {
  Signals signals;
  const SignalId signal = signals.acquire(0);
  EXPECT_FALSE(signals.peek(signal).done);
  signals.complete(signal, 1.5, std::make_shared<const Failure>(Failure{"why", "copy"}));
  const Outcome outcome = signals.await(signal);
  EXPECT_TRUE(outcome.done);
  EXPECT_EQ(outcome.time, 1.5);
  EXPECT_EQ(outcome.failure->message, "why");
  EXPECT_FALSE(outcome.cleared);
}

TEST(Signals, AreReusedOnlyWhenNobodyHoldsThem) {
  Signals signals;
  const SignalId first = signals.acquire(0);
  signals.retain(first);
  signals.complete(first, 1, nullptr);
  signals.release(first);
  EXPECT_NE(signals.acquire(0), first);
  signals.release(first);
  const SignalId again = signals.acquire(0);
  EXPECT_EQ(again, first);
  EXPECT_FALSE(signals.peek(again).done);
}

TEST(Signals, FailuresAreClearedByLane) {
  Signals signals;
  const auto failure = std::make_shared<const Failure>(Failure{"why", "copy"});
  const SignalId mine = signals.acquire(1), other = signals.acquire(2), sound = signals.acquire(1);
  signals.complete(mine, 0, failure);
  signals.complete(other, 0, failure);
  signals.complete(sound, 0, nullptr);
  signals.clear_failures(1);
  EXPECT_TRUE(signals.peek(mine).cleared);
  EXPECT_TRUE(signals.peek(mine).failure);  // waits enqueued before still see it
  EXPECT_FALSE(signals.peek(other).cleared);
  EXPECT_FALSE(signals.peek(sound).cleared);
}

// More signals than places to wait at, completed in another order than they are waited for.
TEST(Signals, EveryWaitEndsByItsOwnSignal) {
  constexpr std::uint32_t count = 200;
  Signals signals;
  std::vector<SignalId> ids;
  for (std::uint32_t i = 0; i < count; ++i) ids.push_back(signals.acquire(0));
  std::vector<std::thread> waiting;
  for (std::uint32_t first = 0; first < 4; ++first) {
    waiting.emplace_back([&, first] {
      for (std::uint32_t i = first; i < count; i += 4) EXPECT_EQ(signals.await(ids[i]).time, i);
    });
  }
  for (std::uint32_t i = count; i-- > 0;) signals.complete(ids[i], i, nullptr);
  for (std::thread& each : waiting) each.join();
}

}  // namespace
}  // namespace stowage::simulated
