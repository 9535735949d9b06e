#include "offload/plan/schedule.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

// Ten ops of one second each; bucket b takes `seconds[b]` on the link either way.
struct Setting {
  explicit Setting(std::vector<double> seconds) {
    draft.sequence.resize(10);
    draft.uses.resize(10);
    draft.backward_end = 10;
    durations = {std::vector<double>(10, 1.0), seconds, seconds};
  }
  LifetimeId prefetched(BucketId bucket, Position first, Position last) {
    return add({.bucket = bucket, .first_use = first, .last_use = last, .prefetched = true});
  }
  LifetimeId offloaded(BucketId bucket, Position first, Position last) {
    return add({.bucket = bucket, .first_use = first, .last_use = last, .offloaded = true});
  }
  LifetimeId add(DraftLifetime lifetime) {
    draft.lifetimes.push_back(lifetime);
    LifetimeId id = static_cast<LifetimeId>(draft.lifetimes.size() - 1);
    draft.uses[static_cast<std::size_t>(lifetime.first_use)].push_back(id);
    if (lifetime.last_use != lifetime.first_use)
      draft.uses[static_cast<std::size_t>(lifetime.last_use)].push_back(id);
    return id;
  }
  Draft draft;
  Durations durations;
};

TEST(Schedule, SerialTransfersStandBetweenTwoOps) {
  Setting setting({1.0, 1.0});
  setting.prefetched(0, 4, 5);
  setting.offloaded(1, 2, 3);
  Draft draft = schedule(setting.draft, setting.durations, 0);
  EXPECT_EQ(draft.lifetimes[0].first, 4);
  EXPECT_EQ(draft.lifetimes[0].last, 6);
  EXPECT_EQ(draft.lifetimes[1].last, 4);
}

TEST(Schedule, APrefetchStartsOneTransferEarlierThanItMust) {
  Setting setting({1.5});
  setting.prefetched(0, 6, 6);
  // Must start at 4.5, so it may from 3.0 on: at the beginning of op 3.
  EXPECT_EQ(schedule(setting.draft, setting.durations, 4).lifetimes[0].first, 3);
}

TEST(Schedule, TheLinkIsOneQueueInOrderOfNeed) {
  Setting setting({2.0, 2.0});
  setting.prefetched(1, 7, 7);
  setting.prefetched(0, 6, 6);
  Draft draft = schedule(setting.draft, setting.durations, 4);
  EXPECT_EQ(draft.lifetimes[0].first, 3);  // at most 7 - 2 - 2
  EXPECT_EQ(draft.lifetimes[1].first, 1);  // its transfer ends when the other's begins
}

TEST(Schedule, TheDistanceLimitsWhatIsUnderWay) {
  Setting setting({5.0, 5.0, 5.0});
  for (BucketId b = 0; b < 3; ++b) setting.prefetched(b, 3 + 2 * Position(b), 3 + 2 * Position(b));
  Draft draft = schedule(setting.draft, setting.durations, 1);
  EXPECT_EQ(draft.lifetimes[1].first, 3);  // when the first is used
  EXPECT_EQ(draft.lifetimes[2].first, 5);
  Draft far = schedule(setting.draft, setting.durations, 8);
  EXPECT_EQ(far.lifetimes[2].first, 0);
}

TEST(Schedule, BytesOfAnOffloadAreFreeWhenItHasEnded) {
  Setting setting({1.0, 2.5});
  setting.offloaded(1, 0, 1);
  // Ends at 2 + 2.5, with as much again to spare: the first op to start after 7.0.
  EXPECT_EQ(schedule(setting.draft, setting.durations, 4).lifetimes[0].last, 7);
}

TEST(Schedule, LifetimesThatWouldTouchAreJoinedAndTheirTransfersDropped) {
  Setting setting({1.0});
  setting.offloaded(0, 0, 2);
  setting.prefetched(0, 5, 6);
  Draft draft = schedule(setting.draft, setting.durations, 4);
  ASSERT_EQ(draft.lifetimes.size(), 1U);
  EXPECT_EQ(draft.lifetimes[0].first_use, 0);
  EXPECT_EQ(draft.lifetimes[0].last_use, 6);
  EXPECT_FALSE(draft.lifetimes[0].offloaded);
  EXPECT_FALSE(draft.lifetimes[0].prefetched);
  EXPECT_EQ(draft.uses[5].front(), 0U);
}

TEST(Schedule, ACopyThatAReplayMakesIsNeverJoined) {
  Setting setting({1.0});
  setting.offloaded(0, 0, 1);
  setting.add({.bucket = 0, .first_use = 7, .last_use = 7, .copy = true});
  setting.prefetched(0, 8, 9);
  Draft draft = schedule(setting.draft, setting.durations, 0);
  EXPECT_EQ(draft.lifetimes.size(), 3U);
}

TEST(Schedule, ResidentsSpanTheStep) {
  Setting setting({1.0});
  setting.add({.bucket = 0, .first_use = 3, .last_use = 4, .resident = true});
  Draft draft = schedule(setting.draft, setting.durations, 2);
  EXPECT_EQ(draft.lifetimes[0].first, 0);
  EXPECT_EQ(draft.lifetimes[0].last, 10);
}

TEST(Schedule, NothingOfTheUpdatePhaseIsClaimedBeforeTheGate) {
  Setting setting({3.0});
  setting.draft.backward_end = 8;
  setting.prefetched(0, 8, 9);
  EXPECT_EQ(schedule(setting.draft, setting.durations, 8).lifetimes[0].first, 8);
}

}  // namespace
}  // namespace stowage
