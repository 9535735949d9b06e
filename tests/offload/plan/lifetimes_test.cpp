#include "offload/plan/lifetimes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offload/plan/candidate.h"
#include "offload/plan/extreme_choices.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

using testing::chain_graph;
using ::testing::ElementsAre;
using testing::find_tensor;

struct Setting {
  explicit Setting(int units = 1, bool on_host = true)
      : graph(chain_graph({.units = units, .parameter_elements = 8192})),
        problem(make_problem(graph, machine, {.target_bytes = 0, .group_gradients = on_host})) {}
  std::vector<DraftLifetime> of(const Draft& draft, const std::string& tensor) const {
    std::vector<DraftLifetime> found;
    for (const DraftLifetime& lifetime : draft.lifetimes)
      if (lifetime.bucket == problem.layout.bucket_of[find_tensor(graph, tensor)]) found.push_back(lifetime);
    return found;
  }
  BucketId bucket(const std::string& tensor) const {
    return problem.layout.bucket_of[find_tensor(graph, tensor)];
  }
  Draft draft(const Choices& choices) const {
    return make_lifetimes(graph, problem.analysis, problem.layout, choices);
  }
  std::vector<std::string> names(const Draft& draft) const {
    std::vector<std::string> result;
    for (const SequenceStep& step : draft.sequence)
      result.push_back((step.recompute ? "again " : "") + graph.op(step.op).name);
    return result;
  }
  Machine machine;
  Graph graph;
  Problem problem;
};

TEST(Lifetimes, ARecomputedUnitReplaysDirectlyBeforeItsFirstBackwardOp) {
  Setting setting;
  Draft draft = setting.draft(lowest_choices(setting.problem));
  EXPECT_THAT(setting.names(draft), ElementsAre("embed", "a0", "b0", "head", "head.backward", "again a0",
                                                "b.backward0", "a.weight0", "square0"));
}

TEST(Lifetimes, UpdatesJoinTheSequenceOnlyWhenTheDeviceMakesThem) {
  Setting setting(1, false);
  Draft draft = setting.draft(resident_choices(setting.problem));
  EXPECT_EQ(setting.names(draft).back(), "adamw0");
  EXPECT_EQ(draft.backward_end, 8);
  std::vector<DraftLifetime> weights = setting.of(draft, "W0");
  ASSERT_EQ(weights.size(), 1U);
  EXPECT_TRUE(weights[0].resident);
}

TEST(Lifetimes, ARecomputedActivationLivesTwiceAndAKeptOneOnce) {
  Setting setting;
  Choices choices = lowest_choices(setting.problem);
  std::vector<DraftLifetime> twice = setting.of(setting.draft(choices), "h0");
  ASSERT_EQ(twice.size(), 2U);
  EXPECT_EQ(twice[0].first_use, 1);
  EXPECT_EQ(twice[0].last_use, 2);
  EXPECT_EQ(twice[1].first_use, 5);
  EXPECT_EQ(twice[1].last_use, 6);
  EXPECT_FALSE(twice[1].prefetched);
  choices.activations[setting.bucket("h0")] = ActivationChoice::keep;
  EXPECT_EQ(setting.of(setting.draft(choices), "h0").size(), 1U);
}

// What could be rebuilt may leave and come back instead, and then nothing is replayed.
TEST(Lifetimes, ASavedActivationMayBeOffloaded) {
  Setting setting;
  Choices choices = lowest_choices(setting.problem);
  choices.activations[setting.bucket("h0")] = ActivationChoice::offload;
  Draft draft = setting.draft(choices);
  EXPECT_THAT(setting.names(draft), ::testing::Not(::testing::Contains("again a0")));
  std::vector<DraftLifetime> moved = setting.of(draft, "h0");
  ASSERT_EQ(moved.size(), 2U);
  EXPECT_TRUE(moved[0].offloaded && moved[1].prefetched);
  EXPECT_EQ(moved[1].first_use, 5);
}

// The second of two saved values stays: the replay makes the first, and a copy of the second that nobody
// reads.
TEST(Lifetimes, WhatStaysIsNotOverwrittenByTheReplayOfWhatIsMadeBesideIt) {
  Graph graph = chain_graph({.units = 1, .parameter_elements = 8192});
  const TensorId beside = static_cast<TensorId>(graph.tensors.size());
  graph.tensors.push_back({"beside", DataType::f32, {1024}, TensorKind::activation, {}});
  graph.ops[testing::find_op(graph, "a0")].writes.push_back(beside);
  graph.ops[testing::find_op(graph, "b.backward0")].reads.push_back(beside);
  Machine machine;
  Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  Choices choices = lowest_choices(problem);
  const BucketId bucket = problem.layout.bucket_of[beside];
  choices.activations[bucket] = ActivationChoice::keep;
  Draft draft = make_lifetimes(graph, problem.analysis, problem.layout, choices);
  int copies = 0, real = 0;
  for (const DraftLifetime& lifetime : draft.lifetimes)
    if (lifetime.bucket == bucket) ++(lifetime.copy ? copies : real);
  EXPECT_EQ(copies, 1);
  EXPECT_EQ(real, 1);
}

// One parameter's optimizer on the device, the other's on the host.
TEST(Lifetimes, AResidentParameterIsUpdatedOnTheDeviceAndItsGradientStaysThere) {
  Setting setting(2);
  Choices choices = lowest_choices(setting.problem);
  choices.loads[setting.bucket("W0")] = LoadChoice::resident;
  Draft draft = setting.draft(choices);
  EXPECT_EQ(setting.names(draft).back(), "adamw0");
  EXPECT_THAT(setting.names(draft), ::testing::Not(::testing::Contains("adamw1")));
  ASSERT_EQ(setting.of(draft, "W0.grad").size(), 1U);
  EXPECT_FALSE(setting.of(draft, "W0.grad")[0].offloaded);
  EXPECT_EQ(setting.of(draft, "W0.grad")[0].last_use, draft.backward_end);
  EXPECT_TRUE(setting.of(draft, "W1.grad")[0].offloaded);
  EXPECT_TRUE(setting.of(draft, "W0")[0].resident);
}

TEST(Lifetimes, AnOffloadedInputLeavesAfterItsLastForwardUseAndComesBack) {
  Setting setting;
  Choices choices = lowest_choices(setting.problem);
  std::vector<DraftLifetime> moved = setting.of(setting.draft(choices), "x0");
  ASSERT_EQ(moved.size(), 2U);
  EXPECT_TRUE(moved[0].offloaded);
  EXPECT_EQ(moved[0].last_use, 1);
  EXPECT_TRUE(moved[1].prefetched);
  EXPECT_EQ(moved[1].first_use, 5);
  choices.activations[setting.bucket("x0")] = ActivationChoice::keep;
  std::vector<DraftLifetime> kept = setting.of(setting.draft(choices), "x0");
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_FALSE(kept[0].offloaded);
}

// x1 is read by units 1 and 3, and by unit 1's backward. Between the units lies unit 2: a long gap.
Setting with_skip() {
  Setting setting(4);
  setting.graph.ops[testing::find_op(setting.graph, "b3")].reads.push_back(find_tensor(setting.graph, "x1"));
  setting.problem = make_problem(setting.graph, setting.machine, {.target_bytes = 0});
  return setting;
}

TEST(Lifetimes, ASpilledSkipConnectionLeavesBetweenItsForwardUsesAndComesBackForEach) {
  const Setting setting = with_skip();
  Choices choices = lowest_choices(setting.problem);
  const auto of_x1 = [&](ActivationChoice choice) {
    choices.activations[setting.bucket("x1")] = choice;
    return setting.of(setting.draft(choices), "x1");
  };
  const auto ops = [&](const DraftLifetime& lifetime) {
    const std::vector<std::string> names = setting.names(setting.draft(choices));
    return std::pair(names[static_cast<std::size_t>(lifetime.first_use)],
                     names[static_cast<std::size_t>(lifetime.last_use)]);
  };
  using Ops = std::pair<std::string, std::string>;
  const std::vector<DraftLifetime> spilled = of_x1(ActivationChoice::spill);
  ASSERT_EQ(spilled.size(), 3U);
  EXPECT_EQ(ops(spilled[0]), Ops("b0", "a1"));
  EXPECT_EQ(ops(spilled[1]), Ops("b3", "b3"));
  EXPECT_EQ(ops(spilled[2]), Ops("again a1", "a.weight1"));
  // The host has its bytes once they have left, for nobody writes them.
  EXPECT_TRUE(spilled[0].offloaded && !spilled[1].offloaded && !spilled[2].offloaded);
  EXPECT_TRUE(!spilled[0].prefetched && spilled[1].prefetched && spilled[2].prefetched);
  const std::vector<DraftLifetime> offloaded = of_x1(ActivationChoice::offload);
  ASSERT_EQ(offloaded.size(), 2U);
  EXPECT_EQ(ops(offloaded[0]), Ops("b0", "b3"));
  EXPECT_TRUE(offloaded[0].offloaded && offloaded[1].prefetched);
  EXPECT_EQ(of_x1(ActivationChoice::keep).size(), 1U);
}

TEST(Lifetimes, WhatIsWrittenAfterItCameBackLeavesAnew) {
  Setting setting(4);
  Op& writer = setting.graph.ops[testing::find_op(setting.graph, "b3")];
  writer.reads.push_back(find_tensor(setting.graph, "x1"));
  writer.writes.push_back(find_tensor(setting.graph, "x1"));
  setting.problem = make_problem(setting.graph, setting.machine, {.target_bytes = 0});
  Choices choices = lowest_choices(setting.problem);
  choices.activations[setting.bucket("x1")] = ActivationChoice::spill;
  const std::vector<DraftLifetime> spilled = setting.of(setting.draft(choices), "x1");
  ASSERT_GE(spilled.size(), 3U);
  EXPECT_TRUE(spilled[0].offloaded);
  EXPECT_TRUE(spilled[1].prefetched && spilled[1].offloaded);
  EXPECT_TRUE(spilled[2].prefetched);
}

TEST(Lifetimes, AParameterIsLoadedForEachOpThenForEachUnitThenOnce) {
  Setting setting(2);
  Choices choices = lowest_choices(setting.problem);
  BucketId w1 = setting.problem.layout.bucket_of[find_tensor(setting.graph, "W1")];
  auto loads = [&](LoadChoice choice) {
    choices.loads[w1] = choice;
    return setting.of(setting.draft(choices), "W1").size();
  };
  EXPECT_EQ(loads(LoadChoice::each_op), 3U);    // forward, replay, input gradient
  EXPECT_EQ(loads(LoadChoice::each_unit), 2U);  // forward; replay and gradient
  EXPECT_EQ(loads(LoadChoice::held), 1U);
}

TEST(Lifetimes, GradientsPartsOfTheNormAndTheLossLand) {
  Setting setting;
  Draft draft = setting.draft(lowest_choices(setting.problem));
  for (const char* name : {"W0.grad", "sum0", "loss"}) {
    std::vector<DraftLifetime> found = setting.of(draft, name);
    ASSERT_EQ(found.size(), 1U) << name;
    EXPECT_TRUE(found[0].offloaded) << name;
  }
}

TEST(Lifetimes, EveryUseHasExactlyOneLifetimeOfItsBucket) {
  Setting setting(3);
  Draft draft = setting.draft(lowest_choices(setting.problem));
  for (std::size_t p = 0; p < draft.sequence.size(); ++p) {
    std::vector<BucketId> touched, used;
    const Op& op = setting.graph.op(draft.sequence[p].op);
    for (TensorId id : op.reads) touched.push_back(setting.problem.layout.bucket_of[id]);
    for (TensorId id : op.writes) touched.push_back(setting.problem.layout.bucket_of[id]);
    for (LifetimeId id : draft.uses.at(static_cast<Position>(p))) used.push_back(draft.lifetimes[id].bucket);
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    std::sort(used.begin(), used.end());
    EXPECT_EQ(used, touched) << op.name;
  }
}

}  // namespace
}  // namespace stowage
