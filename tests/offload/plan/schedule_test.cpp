#include "offload/plan/schedule.h"

#include <gtest/gtest.h>

#include "offload/recompute/recompute.h"
#include "src/graph/cost.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

// Ten ops of one second each; bucket b takes `seconds[b]` on the link either way, and 100 bytes.
struct Setting {
  explicit Setting(std::vector<double> seconds) {
    draft.sequence.assign(10, {.op = 0});
    draft.uses = Uses(10, {});
    draft.backward_end = 10;
    layout.buckets.resize(seconds.size());
    for (Bucket& bucket : layout.buckets) bucket.bytes = 100;
    durations = {std::vector<double>(10, 1.0), seconds, seconds, std::vector<double>(seconds.size(), 0.0)};
  }
  Draft within(Bytes cap) const { return schedule_within(draft, durations, layout, {.cap = cap}); }
  LifetimeId prefetched(BucketId bucket, Position first, Position last) {
    return add({.bucket = bucket, .first_use = first, .last_use = last, .prefetched = true});
  }
  LifetimeId offloaded(BucketId bucket, Position first, Position last) {
    return add({.bucket = bucket,
                .first_use = first,
                .last_use = last,
                .last_before_update = last,
                .offloaded = true});
  }
  // The op at `position` is on the peer lane from now on.
  void exchange_at(Position position) {
    draft.sequence[static_cast<std::size_t>(position)].op = 1;
    layout.lanes = {LaneRole::compute, LaneRole::peer};
    layout.has_peers = true;
  }
  LifetimeId add(DraftLifetime lifetime) {
    draft.lifetimes.push_back(lifetime);
    LifetimeId id = static_cast<LifetimeId>(draft.lifetimes.size() - 1);
    uses.emplace_back(lifetime.first_use, id);
    if (lifetime.last_use != lifetime.first_use) uses.emplace_back(lifetime.last_use, id);
    draft.uses = Uses(draft.sequence.size(), uses);
    return id;
  }
  Draft draft;
  std::vector<std::pair<Position, LifetimeId>> uses;
  Durations durations;
  BucketLayout layout;
};

TEST(Schedule, SerialTransfersStandBetweenTwoOps) {
  Setting setting({1.0, 1.0});
  setting.prefetched(0, 4, 5);
  setting.offloaded(1, 2, 3);
  Draft draft = schedule_serially(setting.draft);
  EXPECT_EQ(draft.lifetimes[0].first, 4);
  EXPECT_EQ(draft.lifetimes[0].last, 6);
  EXPECT_EQ(draft.lifetimes[1].last, 4);
}

TEST(Schedule, APrefetchStartsOneTransferEarlierThanItMust) {
  Setting setting({1.5});
  setting.prefetched(0, 6, 6);
  // Must start at 4.5, so it may from 3.0 on: at the beginning of op 3.
  EXPECT_EQ(setting.within(unlimited).lifetimes[0].first, 3);
}

TEST(Schedule, TheLinkIsOneQueueInOrderOfNeed) {
  Setting setting({2.0, 2.0});
  setting.prefetched(1, 7, 7);
  setting.prefetched(0, 6, 6);
  Draft draft = setting.within(unlimited);
  EXPECT_EQ(draft.lifetimes[0].first, 3);  // at most 7 - 2 - 2
  EXPECT_EQ(draft.lifetimes[1].first, 1);  // its transfer ends when the other's begins
}

TEST(Schedule, TheCapLimitsWhatIsUnderWay) {
  Setting setting({5.0, 5.0, 5.0});
  for (BucketId b = 0; b < 3; ++b) setting.prefetched(b, 3 + 2 * Position(b), 3 + 2 * Position(b));
  Draft draft = setting.within(100);
  EXPECT_EQ(draft.lifetimes[1].first, 4);  // when the first is dead
  EXPECT_EQ(draft.lifetimes[2].first, 6);
  Draft far = setting.within(unlimited);
  EXPECT_EQ(far.lifetimes[0].first, 0);
  EXPECT_EQ(far.lifetimes[1].first, 3);  // when the link is free: the first use has waited until 5.0
  EXPECT_EQ(far.lifetimes[2].first, 5);
}

TEST(Schedule, NoClaimReachesOverOpsThatLeaveNoRoom) {
  Setting setting({3.0, 0.0});
  setting.prefetched(0, 7, 7);
  setting.add({.bucket = 1, .first_use = 4, .last_use = 4});
  EXPECT_EQ(setting.within(150).lifetimes[0].first, 5);
  EXPECT_EQ(setting.within(50).lifetimes[0].first, 7);  // less than the ops need: serial
  EXPECT_EQ(setting.within(200).lifetimes[0].first, 1);
}

TEST(Schedule, APrefetchWaitsUntilTheHostHasItsValueAndOthersForTheSameOpGoFirst) {
  Setting setting({1.0, 1.0});
  setting.durations.ready = {2.0, 0.0};
  setting.prefetched(0, 3, 3);
  setting.prefetched(1, 3, 3);
  Draft draft = setting.within(unlimited);
  EXPECT_LE(draft.lifetimes[1].first, 1);
  EXPECT_EQ(draft.lifetimes[0].first, 2);
  EXPECT_LT(draft.lifetimes[1].order, draft.lifetimes[0].order);
}

TEST(Schedule, WhereThereIsNoRoomTheOpsWaitForAnOffload) {
  Setting setting({1.0, 2.5, 0.0});
  setting.offloaded(1, 0, 1);
  setting.add({.bucket = 2, .first_use = 2, .last_use = 3});
  EXPECT_EQ(setting.within(100).lifetimes[0].last, 2);
  EXPECT_EQ(setting.within(200).lifetimes[0].last, 7);
}

TEST(Schedule, BytesOfAnOffloadAreFreeWhenItHasEnded) {
  Setting setting({1.0, 2.5});
  setting.offloaded(1, 0, 1);
  // Ends at 2 + 2.5, with as much again to spare: the first op to start after 7.0.
  EXPECT_EQ(setting.within(unlimited).lifetimes[0].last, 7);
}

TEST(Schedule, LifetimesThatWouldTouchAreJoinedAndTheirTransfersDropped) {
  Setting setting({1.0});
  setting.offloaded(0, 0, 2);
  setting.prefetched(0, 5, 6);
  Draft draft = setting.within(unlimited);
  ASSERT_EQ(draft.lifetimes.size(), 1U);
  EXPECT_EQ(draft.lifetimes[0].first_use, 0);
  EXPECT_EQ(draft.lifetimes[0].last_use, 6);
  EXPECT_FALSE(draft.lifetimes[0].offloaded);
  EXPECT_FALSE(draft.lifetimes[0].prefetched);
  EXPECT_EQ(draft.uses.at(5).front(), 0U);
}

TEST(Schedule, WhatIsBroughtInOnceMoreIsStillOffloadedWhenTheFirstTwoAreJoined) {
  Setting setting({1.0});
  setting.offloaded(0, 0, 1);
  setting.prefetched(0, 2, 2);
  setting.prefetched(0, 8, 8);
  Draft draft = schedule_serially(setting.draft);
  ASSERT_EQ(draft.lifetimes.size(), 2U);
  EXPECT_EQ(draft.lifetimes[0].last_use, 2);
  EXPECT_TRUE(draft.lifetimes[0].offloaded);
  EXPECT_TRUE(draft.lifetimes[1].prefetched);
}

TEST(Schedule, WhatOthersBringInOrAReplayMakesLaterIsNoReasonToOffloadWhatWasJoined) {
  Setting setting({1.0, 1.0});
  setting.offloaded(0, 0, 1);
  setting.prefetched(0, 2, 2);
  Setting other = setting;
  other.prefetched(1, 8, 8);
  EXPECT_FALSE(schedule_serially(other.draft).lifetimes[0].offloaded);
  setting.add({.bucket = 0, .first_use = 8, .last_use = 8});
  EXPECT_FALSE(schedule_serially(setting.draft).lifetimes[0].offloaded);
}

TEST(Schedule, ACopyThatAReplayMakesIsNeverJoined) {
  Setting setting({1.0});
  setting.offloaded(0, 0, 1);
  setting.add({.bucket = 0, .first_use = 7, .last_use = 7, .copy = true});
  setting.prefetched(0, 8, 9);
  Draft draft = schedule_serially(setting.draft);
  EXPECT_EQ(draft.lifetimes.size(), 3U);
}

TEST(Schedule, ResidentsSpanTheStep) {
  Setting setting({1.0});
  setting.add({.bucket = 0, .first_use = 3, .last_use = 4, .resident = true});
  Draft draft = setting.within(unlimited);
  EXPECT_EQ(draft.lifetimes[0].first, 0);
  EXPECT_EQ(draft.lifetimes[0].last, 10);
}

TEST(Schedule, WhatIsHeldForTheWholeStepIsNotClaimedLater) {
  Setting setting({1.0});
  setting.add({.bucket = 0, .first_use = 6, .last_use = 6, .prefetched = true, .whole_step = true});
  Draft draft = setting.within(unlimited);
  EXPECT_EQ(draft.lifetimes[0].first, 0);
  EXPECT_EQ(draft.lifetimes[0].last, 10);
}

TEST(Schedule, WhatIsClaimedAlreadyTakesRoom) {
  Setting setting({1.0, 1.0, 0.0});
  setting.prefetched(0, 8, 8);
  setting.prefetched(1, 8, 8);
  setting.add({.bucket = 2, .first_use = 5, .last_use = 7});
  Draft draft = setting.within(200);
  EXPECT_EQ(draft.lifetimes[0].first, 5);
  EXPECT_EQ(draft.lifetimes[1].first, 8);
  EXPECT_EQ(setting.within(300).lifetimes[1].first, 6);
}

TEST(Schedule, WhatIsStillLeavingTakesRoom) {
  Setting setting({1.0, 2.5});
  setting.offloaded(1, 0, 1);  // leaves until 7.0
  setting.prefetched(0, 5, 5);
  EXPECT_EQ(setting.within(150).lifetimes[1].first, 5);  // the op waits for both
  EXPECT_EQ(setting.within(200).lifetimes[1].first, 3);
}

TEST(Schedule, ADistanceLimitsTransfersEachWay) {
  Setting setting({3.0, 3.0, 4.0, 4.0});
  setting.offloaded(0, 0, 0);
  setting.offloaded(1, 0, 1);
  const auto within = [&](std::uint32_t distance) {
    return schedule_within(setting.draft, setting.durations, setting.layout, {.distance = distance});
  };
  EXPECT_EQ(within(1).lifetimes[0].last, 2);  // op 2 waits for it
  EXPECT_EQ(within(2).lifetimes[0].last, 7);
  setting.draft.lifetimes.clear();
  setting.prefetched(2, 6, 6);
  setting.prefetched(3, 9, 9);
  EXPECT_EQ(within(1).lifetimes[1].first, 6);  // not before the first is used
  EXPECT_EQ(within(2).lifetimes[1].first, 4);  // when the link is free
}

// Bucket by bucket in the order of first use; only parameters wait for the host, and residents do not.
TEST(Durations, AParameterIsReadyWhenTheHostHasUpdatedItAndAllBeforeIt) {
  const Graph graph = testing::chain_graph({.units = 3});
  const BucketLayout layout = make_buckets(graph, analyse_recompute(graph).group, {});
  const Machine machine;
  std::vector<double> update(layout.buckets.size(), 0);
  for (const Op& op : graph.ops)
    for (TensorId id : op.writes)
      if (op.phase == Phase::update && graph.tensor(id).kind == TensorKind::parameter)
        update[layout.bucket_of[id]] = host_seconds(op, machine);
  ASSERT_GE(layout.parameters.size(), 3U);
  Draft draft;
  for (BucketId resident : {no_id, layout.parameters[1]}) {
    if (resident != no_id) {
      draft.lifetimes.push_back({.bucket = resident, .resident = true});
      draft.sequence.push_back({testing::find_op(graph, "adamw1"), false});
    }
    const std::vector<double> ready = make_durations(graph, draft, layout, machine).ready;
    double now = 0;
    for (BucketId id : layout.parameters) {
      now += id == resident ? 0 : update[id];
      EXPECT_DOUBLE_EQ(ready[id], now);
    }
    for (BucketId id = 0; id < ready.size(); ++id)
      EXPECT_TRUE(layout.roles[id] == BucketRole::parameter || ready[id] == 0);
  }
}

TEST(Schedule, NothingOfTheUpdatePhaseIsClaimedBeforeTheGate) {
  Setting setting({3.0});
  setting.draft.backward_end = 8;
  setting.prefetched(0, 8, 9);
  EXPECT_EQ(setting.within(unlimited).lifetimes[0].first, 8);
}

TEST(PeerSchedule, WhatIsGatheredIsThereOneOpEarlierThanItMust) {
  Setting setting({1.0});
  setting.durations.sequence[6] = 2;
  setting.exchange_at(6);
  setting.add({.bucket = 0, .first_use = 6, .last_use = 7});
  // Op 7 starts at 6 s, so the gather must at 4 s and may from 2 s on.
  EXPECT_EQ(setting.within(unlimited).lifetimes[0].first, 2);
  EXPECT_EQ(setting.within(100).lifetimes[0].first, 2);
  setting.add({.bucket = 0, .first_use = 0, .last_use = 3});
  EXPECT_EQ(setting.within(100).lifetimes[0].first, 4) << "no room before";
}

TEST(PeerSchedule, AGatherWaitsForItsShareWhichComesEarlier) {
  Setting setting({1.0, 1.0});
  setting.durations.sequence[6] = 2;
  setting.exchange_at(6);
  setting.prefetched(1, 6, 6);
  setting.add({.bucket = 0, .first_use = 6, .last_use = 7});
  const Draft draft = setting.within(unlimited);
  EXPECT_EQ(draft.lifetimes[0].first, 2);  // its transfer must start at 3 s
  EXPECT_EQ(draft.lifetimes[1].first, 3);  // when the share is there
}

TEST(PeerSchedule, TheComputeLaneGoesOnBesideAnExchange) {
  Setting setting({1.0});
  setting.durations.sequence[3] = 2.5;
  setting.exchange_at(3);
  setting.add({.bucket = 0, .first_use = 2, .last_use = 3, .last_before_update = 3});
  // It ends at 5.5 s, and 2.5 s later its bytes are taken anew: op 9 starts at 8 s.
  EXPECT_EQ(setting.within(unlimited).lifetimes[0].last, 9);
}

TEST(PeerSchedule, WhereThereIsNoRoomTheOpsWaitForAnExchange) {
  Setting setting({1.0, 1.0});
  setting.durations.sequence[3] = 2.5;
  setting.exchange_at(3);
  setting.add({.bucket = 0, .first_use = 2, .last_use = 3, .last_before_update = 3});
  setting.add({.bucket = 1, .first_use = 5, .last_use = 5});
  EXPECT_EQ(setting.within(100).lifetimes[0].last, 5);
}

TEST(PeerSchedule, WhatLeavesWaitsForTheExchangeThatMakesIt) {
  Setting setting({1.0});
  setting.durations.sequence[3] = 2.5;
  setting.exchange_at(3);
  setting.offloaded(0, 3, 3);
  // Made at 5.5 s, out at 6.5 s, and free one transfer later: op 9 starts at 8 s.
  EXPECT_EQ(setting.within(unlimited).lifetimes[0].last, 9);
}

TEST(PeerSchedule, AGatherBeginsBehindTheLastUseOfTheSameBucket) {
  Setting setting({1.0});
  setting.durations.sequence[6] = 2;
  setting.exchange_at(6);
  setting.add({.bucket = 0, .first_use = 4, .last_use = 4});
  setting.add({.bucket = 0, .first_use = 6, .last_use = 7});
  EXPECT_EQ(setting.within(unlimited).lifetimes[1].first, 5);
}

TEST(PeerSchedule, TheDistanceOfOffloadsHoldsBesideAnExchange) {
  Setting setting({4.0, 4.0, 1.0});
  setting.durations.sequence[3] = 2;
  setting.exchange_at(3);
  setting.offloaded(0, 1, 1);
  setting.offloaded(1, 2, 2);
  setting.add({.bucket = 2, .first_use = 3, .last_use = 3, .last_before_update = 3});
  const Draft draft = schedule_within(setting.draft, setting.durations, setting.layout, {.distance = 1});
  EXPECT_EQ(draft.lifetimes[0].last, 3);  // op 3 waits for it, since the second is under way
}

}  // namespace
}  // namespace stowage
