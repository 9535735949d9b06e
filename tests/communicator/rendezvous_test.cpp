#include "src/communicator/rendezvous.h"

#include <gtest/gtest.h>

#include <thread>

namespace stowage::communication {
namespace {

TEST(Rendezvous, EachRoundHasWhatAllBrought) {
  constexpr int ranks = 3, rounds = 200;
  Rendezvous<int> rendezvous(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      for (int round = 0; round < rounds; ++round) {
        const auto* const all = rendezvous.come(rank, 10 * round + rank);
        ASSERT_NE(all, nullptr);
        ASSERT_EQ(*all, (std::vector<int>{10 * round, 10 * round + 1, 10 * round + 2}));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Rendezvous, StopEndsAllWaiting) {
  Rendezvous<int> rendezvous(2);
  std::thread waiting([&] { EXPECT_EQ(rendezvous.come(0, 1), nullptr); });
  rendezvous.stop();
  waiting.join();
  EXPECT_EQ(rendezvous.come(1, 1), nullptr);
}

}  // namespace
}  // namespace stowage::communication
