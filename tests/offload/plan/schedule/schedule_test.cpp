#include "offload/plan/schedule/schedule.h"

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
  Setting& prefetched(BucketId bucket, Position first, Position last) {
    return add({.bucket = bucket, .first_use = first, .last_use = last, .prefetched = true});
  }
  Setting& offloaded(BucketId bucket, Position first, Position last) {
    return add({.bucket = bucket,
                .first_use = first,
                .last_use = last,
                .last_before_update = last,
                .offloaded = true});
  }
  Setting& used(BucketId bucket, Position first, Position last) {
    return add({.bucket = bucket, .first_use = first, .last_use = last, .last_before_update = last});
  }
  // The op at `position` is on the peer lane, and takes so long.
  Setting& exchange_at(Position position, double seconds) {
    draft.sequence[static_cast<std::size_t>(position)].op = 1;
    durations.sequence[static_cast<std::size_t>(position)] = seconds;
    layout.lanes = {LaneRole::compute, LaneRole::peer};
    layout.has_peers = true;
    return *this;
  }
  Setting& add(DraftLifetime lifetime) {
    draft.lifetimes.push_back(lifetime);
    LifetimeId id = static_cast<LifetimeId>(draft.lifetimes.size() - 1);
    uses.emplace_back(lifetime.first_use, id);
    if (lifetime.last_use != lifetime.first_use) uses.emplace_back(lifetime.last_use, id);
    draft.uses = Uses(draft.sequence.size(), uses);
    return *this;
  }
  std::vector<DraftLifetime> within(const Reach& reach) const {
    return schedule_within(draft, durations, layout, reach).lifetimes;
  }
  std::vector<Position> firsts(const Reach& reach) const { return of(within(reach), &DraftLifetime::first); }
  std::vector<Position> lasts(const Reach& reach) const { return of(within(reach), &DraftLifetime::last); }
  static std::vector<Position> of(const std::vector<DraftLifetime>& lifetimes,
                                  Position DraftLifetime::*which) {
    std::vector<Position> positions;
    for (const DraftLifetime& lifetime : lifetimes) positions.push_back(lifetime.*which);
    return positions;
  }
  Draft draft;
  std::vector<std::pair<Position, LifetimeId>> uses;
  Durations durations;
  BucketLayout layout;
};
using At = std::vector<Position>;
const Reach freely;

TEST(Schedule, SerialTransfersStandBetweenTwoOps) {
  const Setting setting = Setting({1, 1}).prefetched(0, 4, 5).offloaded(1, 2, 3);
  const std::vector<DraftLifetime> lifetimes = schedule_serially(setting.draft).lifetimes;
  EXPECT_EQ(Setting::of(lifetimes, &DraftLifetime::first), At({4, 2}));
  EXPECT_EQ(Setting::of(lifetimes, &DraftLifetime::last), At({6, 4}));
}

TEST(Schedule, PrefetchesStartOneTransferEarlierThanTheyMust) {
  // Must start at 4.5, so it may from 3.0 on: at the beginning of op 3.
  EXPECT_EQ(Setting({1.5}).prefetched(0, 6, 6).firsts(freely), At({3}));
  // The link is one queue in order of need: one at most 7 - 2 - 2, the other ends when that begins.
  EXPECT_EQ(Setting({2, 2}).prefetched(1, 7, 7).prefetched(0, 6, 6).firsts(freely), At({3, 1}));
  // Nothing of the update phase is claimed before the gate.
  Setting update({3});
  update.prefetched(0, 8, 9).draft.backward_end = 8;
  EXPECT_EQ(update.firsts(freely), At({8}));
  // What the host has first comes first.
  Setting late({1, 1});
  late.prefetched(0, 3, 3).prefetched(1, 3, 3).durations.ready = {2, 0};
  const std::vector<DraftLifetime> both = late.within(freely);
  EXPECT_LE(both[1].first, 1);
  EXPECT_EQ(both[0].first, 2);
  EXPECT_LT(both[1].order, both[0].order);
}

TEST(Schedule, TheCapLimitsWhatIsUnderWay) {
  const Setting three = Setting({5, 5, 5}).prefetched(0, 3, 3).prefetched(1, 5, 5).prefetched(2, 7, 7);
  EXPECT_EQ(three.firsts({.cap = 100}), At({0, 4, 6}));  // when the one before each is dead
  EXPECT_EQ(three.firsts(freely), At({0, 3, 5}));  // when the link is free: the first use waits until 5.0
  const Setting over_ops = Setting({3, 0}).prefetched(0, 7, 7).used(1, 4, 4);
  EXPECT_EQ(over_ops.firsts({.cap = 150})[0], 5);
  EXPECT_EQ(over_ops.firsts({.cap = 50})[0], 7);  // less than the ops need: serial
  EXPECT_EQ(over_ops.firsts({.cap = 200})[0], 1);
  // What is claimed already takes room.
  const Setting claimed = Setting({1, 1, 0}).prefetched(0, 8, 8).prefetched(1, 8, 8).used(2, 5, 7);
  EXPECT_EQ(claimed.firsts({.cap = 200}), At({5, 8, 5}));
  EXPECT_EQ(claimed.firsts({.cap = 300})[1], 6);
  // What is still leaving, until 7.0, takes room, too: under 150 bytes the op waits for both.
  const Setting leaving = Setting({1, 2.5}).offloaded(1, 0, 1).prefetched(0, 5, 5);
  EXPECT_EQ(leaving.firsts({.cap = 150})[1], 5);
  EXPECT_EQ(leaving.firsts({.cap = 200})[1], 3);
}

TEST(Schedule, BytesOfAnOffloadAreFreeWhenItHasEndedOrAnOpNeedsThem) {
  // Ends at 2 + 2.5, with as much again to spare: the first op to start after 7.0.
  EXPECT_EQ(Setting({1, 2.5}).offloaded(1, 0, 1).lasts(freely), At({7}));
  const Setting needed = Setting({1, 2.5, 0}).offloaded(1, 0, 1).used(2, 2, 3);
  EXPECT_EQ(needed.lasts({.cap = 100})[0], 2);
  EXPECT_EQ(needed.lasts({.cap = 200})[0], 7);
}

TEST(Schedule, ADistanceLimitsTransfersEachWay) {
  const Setting out = Setting({3, 3}).offloaded(0, 0, 0).offloaded(1, 0, 1);
  EXPECT_EQ(out.lasts({.distance = 1})[0], 2);  // op 2 waits for it
  EXPECT_EQ(out.lasts({.distance = 2})[0], 7);
  const Setting in = Setting({4, 4}).prefetched(0, 6, 6).prefetched(1, 9, 9);
  EXPECT_EQ(in.firsts({.distance = 1})[1], 6);  // not before the first is used
  EXPECT_EQ(in.firsts({.distance = 2})[1], 4);  // when the link is free
}

TEST(Schedule, LifetimesThatWouldTouchAreJoinedAndTheirTransfersDropped) {
  const Setting setting = Setting({1}).offloaded(0, 0, 2).prefetched(0, 5, 6);
  const Draft draft = schedule_within(setting.draft, setting.durations, setting.layout, {});
  ASSERT_EQ(draft.lifetimes.size(), 1U);
  EXPECT_EQ(draft.lifetimes[0].first_use, 0);
  EXPECT_EQ(draft.lifetimes[0].last_use, 6);
  EXPECT_FALSE(draft.lifetimes[0].offloaded || draft.lifetimes[0].prefetched);
  EXPECT_EQ(draft.uses.at(5).front(), 0U);
}

// Only what the host brings in once more: not another bucket, nor what a replay makes.
TEST(Schedule, WhatIsJoinedIsOffloadedIfTheHostNeedsItAgain) {
  const Setting two = Setting({1, 1}).offloaded(0, 0, 1).prefetched(0, 2, 2);
  const auto serially = [](Setting setting) { return schedule_serially(setting.draft).lifetimes; };
  const std::vector<DraftLifetime> again = serially(Setting(two).prefetched(0, 8, 8));
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].last_use, 2);
  EXPECT_TRUE(again[0].offloaded && again[1].prefetched);
  EXPECT_FALSE(serially(Setting(two).prefetched(1, 8, 8))[0].offloaded);
  EXPECT_FALSE(serially(Setting(two).used(0, 8, 8))[0].offloaded);
  EXPECT_EQ(serially(Setting({1})
                         .offloaded(0, 0, 1)
                         .add({.bucket = 0, .first_use = 7, .last_use = 7, .copy = true})
                         .prefetched(0, 8, 9))
                .size(),
            3U)
      << "a copy that a replay makes is never joined";
}

TEST(PeerSchedule, GathersAreThereOneOpEarlierThanTheyMust) {
  // Op 7 starts at 6 s, so the gather must at 4 s and may from 2 s on.
  Setting gather = Setting({1, 1}).exchange_at(6, 2).used(0, 6, 7);
  EXPECT_EQ(gather.firsts(freely), At({2}));
  EXPECT_EQ(gather.firsts({.cap = 100}), At({2}));
  EXPECT_EQ(Setting(gather).used(0, 0, 3).firsts({.cap = 100})[0], 4) << "no room before";
  EXPECT_EQ(Setting({1}).exchange_at(6, 2).used(0, 4, 4).used(0, 6, 7).firsts(freely)[1], 5)
      << "behind the last use of the same bucket";
  // The transfer of its share must start at 3 s; then the gather.
  EXPECT_EQ(Setting({1, 1}).exchange_at(6, 2).prefetched(1, 6, 6).used(0, 6, 7).firsts(freely), At({2, 3}));
}

TEST(PeerSchedule, TheComputeLaneGoesOnBesideAnExchangeUntilItNeedsItsBytes) {
  // It ends at 5.5 s, and 2.5 s later its bytes are taken anew: op 9 starts at 8 s.
  const Setting exchange = Setting({1, 1}).exchange_at(3, 2.5).used(0, 2, 3);
  EXPECT_EQ(exchange.lasts(freely)[0], 9);
  EXPECT_EQ(Setting(exchange).used(1, 5, 5).lasts({.cap = 100})[0], 5);
  // Made at 5.5 s, out at 6.5 s, and free one transfer later: op 9 starts at 8 s.
  EXPECT_EQ(Setting({1}).exchange_at(3, 2.5).offloaded(0, 3, 3).lasts(freely), At({9}));
  // Op 3 waits for the first offload, since the second is under way.
  const Setting distant =
      Setting({4, 4, 1}).exchange_at(3, 2).offloaded(0, 1, 1).offloaded(1, 2, 2).used(2, 3, 3);
  EXPECT_EQ(distant.lasts({.distance = 1})[0], 3);
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

}  // namespace
}  // namespace stowage
