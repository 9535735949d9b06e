#include "src/communicator/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stowage::communication {
namespace {

std::string between(const Collective& collective, int sender, int receiver) {
  const auto block = block_between(collective, sender, receiver);
  if (!block) return "nothing";
  return std::to_string(block->from) + " to " + std::to_string(block->to);
}

TEST(Collective, AllGatherSendsAShareToItsPlace) {
  const Collective collective{CollectiveKind::all_gather, 0, 10};
  EXPECT_EQ(between(collective, 2, 0), "0 to 20");
  EXPECT_EQ(between(collective, 0, 2), "0 to 0");
  EXPECT_EQ(between(collective, 1, 1), "nothing");
}

TEST(Collective, ExchangeSendsThePieceOfTheReceiverToThePlaceOfTheSender) {
  const Collective collective{CollectiveKind::exchange, 0, 10};
  EXPECT_EQ(between(collective, 2, 1), "10 to 20");
  EXPECT_EQ(between(collective, 1, 1), "10 to 10");
}

TEST(Collective, BroadcastSendsTheWholeFromTheRoot) {
  const Collective collective{CollectiveKind::broadcast, 1, 10};
  EXPECT_EQ(between(collective, 1, 2), "0 to 0");
  EXPECT_EQ(between(collective, 1, 1), "nothing");
  EXPECT_EQ(between(collective, 0, 1), "nothing");
}

TEST(Collective, NoBytesAreNoBlock) {
  EXPECT_EQ(between({CollectiveKind::exchange, 0, 0}, 1, 2), "nothing");
  EXPECT_EQ(between({CollectiveKind::barrier, 0, 10}, 1, 2), "nothing");
}

TEST(Collective, AMismatchNamesBothCalls) {
  const RankFailure failure =
      mismatch({CollectiveKind::broadcast, 2, 9}, {CollectiveKind::exchange, 0, 4}, 3);
  EXPECT_EQ(failure.rank, 3);
  const CommunicatorError error = error_of("broadcast", failure);
  EXPECT_EQ(error.call(), "broadcast");
  EXPECT_EQ(error.failed_rank(), 3);
  EXPECT_THAT(error.what(),
              testing::HasSubstr("broadcast: rank 3 failed in exchange: rank 0 calls broadcast of 9 "
                                 "bytes from rank 2 where rank 3 calls exchange of pieces of 4 bytes"));
}

}  // namespace
}  // namespace stowage::communication
