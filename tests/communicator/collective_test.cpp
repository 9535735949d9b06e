#include "src/communicator/collective.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stowage::communication {
namespace {

std::string between(const Collective& collective, int sender, int receiver) {
  const auto block = block_between(collective, sender, receiver);
  if (!block) return "nothing";
  return fmt::format("{} from {} to {}", block->bytes, block->from, block->to);
}

TEST(Collective, AllGatherSendsAShareToItsPlace) {
  const Collective collective{CollectiveKind::all_gather, 0, 10, 30};
  EXPECT_EQ(between(collective, 2, 0), "10 from 0 to 20");
  EXPECT_EQ(between(collective, 0, 2), "10 from 0 to 0");
  EXPECT_EQ(between(collective, 1, 1), "10 from 0 to 10");
  EXPECT_FALSE(block_between(collective, Buffers{.in_place = true}, 1, 1));
  EXPECT_TRUE(block_between(collective, Buffers{.in_place = true}, 0, 1));
}

TEST(Collective, TheLastSharesAreCutShort) {
  const Collective gather{CollectiveKind::all_gather, 0, 10, 14};
  EXPECT_EQ(between(gather, 1, 0), "4 from 0 to 10");
  EXPECT_EQ(between(gather, 2, 0), "nothing");
  const Collective exchange{CollectiveKind::exchange, 0, 10, 14};
  EXPECT_EQ(between(exchange, 2, 0), "10 from 0 to 20");
  EXPECT_EQ(between(exchange, 2, 1), "4 from 10 to 20");
  EXPECT_EQ(between(exchange, 0, 2), "nothing");
}

TEST(Collective, ExchangeSendsThePieceOfTheReceiverToThePlaceOfTheSender) {
  const Collective collective{CollectiveKind::exchange, 0, 10, 30};
  EXPECT_EQ(between(collective, 2, 1), "10 from 10 to 20");
  EXPECT_EQ(between(collective, 1, 1), "10 from 10 to 10");
}

TEST(Collective, BroadcastSendsTheWholeFromTheRoot) {
  const Collective collective{CollectiveKind::broadcast, 1, 10};
  EXPECT_EQ(between(collective, 1, 2), "10 from 0 to 0");
  EXPECT_EQ(between(collective, 1, 1), "nothing");
  EXPECT_EQ(between(collective, 0, 1), "nothing");
}

TEST(Collective, NoBytesAreNoBlock) {
  EXPECT_EQ(between({CollectiveKind::exchange, 0, 0, 0}, 1, 2), "nothing");
  EXPECT_EQ(between({CollectiveKind::barrier, 0, 10}, 1, 2), "nothing");
}

TEST(Collective, AMismatchNamesBothCalls) {
  const RankFailure failure =
      mismatch({CollectiveKind::broadcast, 2, 9}, {CollectiveKind::exchange, 0, 4, 9}, 3);
  EXPECT_EQ(failure.rank, 3);
  const CommunicatorError error = error_of("broadcast", failure);
  EXPECT_EQ(error.call(), "broadcast");
  EXPECT_EQ(error.failed_rank(), 3);
  EXPECT_THAT(
      error.what(),
      testing::HasSubstr("broadcast: rank 3 failed in exchange: rank 0 calls broadcast of 9 "
                         "bytes from rank 2 where rank 3 calls exchange of shares of 4 bytes, 9 in all"));
}

}  // namespace
}  // namespace stowage::communication
