#include "offload/recompute/tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stowage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum ActivationState;

// `first` makes x, z and a scratch; `second` turns x into y in place; both are replayed, z is offloaded, and
// the replay's z is a copy that nobody reads.
//
//   position     0        1              2        3               4
//   compute   [ first ][ second ]    [ first'][ second' ]     [ backward ]
//   d2h                      [ z ]
//   h2d                                             [ z ]
class Tracker : public ::testing::Test {
 protected:
  Tracker() {
    for (const char* name : {"x", "y", "scratch", "z"})
      graph.tensors.push_back({name, DataType::f32, {8}, TensorKind::activation, {}});
    graph.tensors[scratch].kind = TensorKind::workspace;
    graph.ops.resize(3);
    graph.ops[0].writes = {x, scratch, z};
    graph.ops[1].reads = {x};
    graph.ops[1].writes = {y};
    graph.ops[1].may_alias = {{0, 0}};
    graph.ops[2].reads = {y, z};
    graph.ops[2].phase = Phase::backward;
    plan.buckets.resize(3);
    plan.buckets[0].tensors = {{x, 0}, {y, 0}};
    plan.buckets[1].tensors = {{scratch, 0}};
    plan.buckets[2].tensors = {{z, 0}};
    //                bucket first last offset end
    plan.lifetimes = {{0, 0, 2, 0, 1}, {1, 0, 1, 0, 0}, {2, 0, 1, 0, 2}, {0, 2, 5, 0, 6},
                      {1, 2, 3, 0, 3}, {2, 2, 3, 0, 3}, {2, 3, 5, 0, 6}};
    using enum InstructionKind;
    plan.instructions = {{launch, LaneRole::compute, 0, no_id, {0, 1, 2}},
                         {launch, LaneRole::compute, 1, no_id, {0}},
                         {offload, LaneRole::d2h, no_id, 2},
                         {recompute, LaneRole::compute, 0, no_id, {3, 4, 5}},
                         {recompute, LaneRole::compute, 1, no_id, {3}},
                         {prefetch, LaneRole::h2d, no_id, 6},
                         {launch, LaneRole::compute, 2, no_id, {3, 6}}};
  }

  std::vector<ActivationState> states(TensorId tensor) const {
    RecomputeTracker tracker(graph, plan);
    tracker.begin_step();
    std::vector<ActivationState> result{tracker.state(tensor)};
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
      tracker.follow(id);
      result.push_back(tracker.state(tensor));
    }
    return result;
  }

  static constexpr TensorId x = 0, y = 1, scratch = 2, z = 3;
  Graph graph;
  Plan plan;
};

TEST_F(Tracker, KnowsWhereEachActivationIs) {
  EXPECT_THAT(states(x), ElementsAre(none, made, dropped, dropped, rebuilt, dropped, dropped, dropped));
  EXPECT_THAT(states(y), ElementsAre(none, none, dropped, dropped, dropped, rebuilt, rebuilt, dropped));
  EXPECT_THAT(states(z), ElementsAre(none, made, made, on_host, on_host, on_host, fetched, on_host));
}

TEST_F(Tracker, AStepStartsAnew) {
  RecomputeTracker tracker(graph, plan);
  tracker.follow(3);
  EXPECT_EQ(tracker.state(x), rebuilt);
  tracker.begin_step();
  EXPECT_EQ(tracker.state(x), none);
}

TEST_F(Tracker, ComparesAllResultsOfWhatIsReplayedButScratch) {
  const RecomputeTracker tracker(graph, plan);
  EXPECT_THAT(tracker.compared_writes(0), ElementsAre(0, 2));
  EXPECT_THAT(tracker.compared_writes(3), ElementsAre(0, 2));
  EXPECT_THAT(tracker.compared_writes(4), ElementsAre(0));
  for (InstructionId other : {2U, 5U, 6U}) EXPECT_THAT(tracker.compared_writes(other), IsEmpty());
}

TEST_F(Tracker, OnlyPartOfAPlanMayBeReplayed) {
  plan.instructions[4] = {InstructionKind::launch, LaneRole::compute, 2, no_id, {3}};
  const RecomputeTracker tracker(graph, plan);
  EXPECT_THAT(tracker.compared_writes(0), ElementsAre(0, 2));
  EXPECT_THAT(tracker.compared_writes(1), IsEmpty());
}

TEST_F(Tracker, AReplayIsComparedWithTheLastLaunch) {
  RecomputeTracker tracker(graph, plan);
  for (std::uint64_t hash : {11U, 22U}) {
    EXPECT_TRUE(tracker.compare(0, 2, hash).equal);
    EXPECT_TRUE(tracker.compare(0, 0, hash + 1).equal);
    EXPECT_TRUE(tracker.compare(3, 2, hash).equal);
    EXPECT_TRUE(tracker.compare(3, 0, hash + 1).equal);
    const auto [equal, expected] = tracker.compare(3, 0, hash);
    EXPECT_FALSE(equal);
    EXPECT_EQ(expected, hash + 1);
  }
}

}  // namespace
}  // namespace stowage
