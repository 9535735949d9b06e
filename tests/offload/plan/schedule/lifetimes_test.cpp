#include "offload/plan/schedule/lifetimes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"
#include "stowage/planner.h"
#include "tests/support/chain_graph.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;

// x1 is read by units 1 and 3, and by unit 1's backward. Between the units lies unit 2: a long gap.
TEST(Lifetimes, ASpilledSkipConnectionLeavesBetweenItsForwardUsesAndComesBackForEach) {
  Graph graph = testing::chain_graph({.units = 4, .parameter_elements = 8192});
  const TensorId x1 = testing::find_tensor(graph, "x1");
  graph.ops[testing::find_op(graph, "b3")].reads.push_back(x1);
  const Machine machine;
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  // Of each lifetime of x1: `<` if it comes in, its first and last op, and `>` if it leaves.
  const auto of_x1 = [&](ActivationChoice choice) {
    Choices choices = lowest_choices(problem);
    choices.activations[problem.layout.bucket_of[x1]] = choice;
    const Draft draft = make_lifetimes(graph, problem.analysis, problem.layout, choices);
    const auto name = [&](Position p) {
      const SequenceStep& step = draft.sequence[static_cast<std::size_t>(p)];
      return (step.recompute ? "again " : "") + graph.op(step.op).name;
    };
    std::vector<std::string> found;
    for (const DraftLifetime& lifetime : draft.lifetimes)
      if (lifetime.bucket == problem.layout.bucket_of[x1])
        found.push_back((lifetime.prefetched ? "<" : "") + name(lifetime.first_use) + ", " +
                        name(lifetime.last_use) + (lifetime.offloaded ? ">" : ""));
    return found;
  };
  // The host has its bytes once they have left, for nobody writes them.
  EXPECT_THAT(of_x1(ActivationChoice::spill), ElementsAre("b0, a1>", "<b3, b3", "<again a1, a.weight1"));
  EXPECT_THAT(of_x1(ActivationChoice::offload), ElementsAre("b0, b3>", "<again a1, a.weight1"));
  EXPECT_THAT(of_x1(ActivationChoice::keep), ElementsAre("b0, a.weight1"));
}

Choices random_choices(const Problem& problem, std::mt19937& random) {
  Choices choices = lowest_choices(problem);
  using enum ActivationChoice;
  const unsigned kinds = random() % 2 == 0 ? 5 : 1;  // half of the time all is made anew that can be
  for (const ActivationItem& item : problem.items) {
    const bool can_be_made_anew = item.rebuildable || item.remaker != no_id;
    const ActivationChoice levels[] = {can_be_made_anew ? recompute : spill, spill, reload, offload, keep};
    choose(item, levels[random() % kinds], choices);
  }
  for (BucketId id = 0; id < choices.loads.size(); ++id) {
    const LoadChoice levels[] = {LoadChoice::each_op, LoadChoice::each_unit, LoadChoice::held,
                                 LoadChoice::resident};
    const std::size_t most = highest_load(problem, id) == LoadChoice::resident ? 4
                             : highest_load(problem, id) == LoadChoice::held   ? 3
                                                                               : 1;
    choices.loads[id] = levels[random() % most];
  }
  return choices;
}

// Position by position: what is loaded comes in anew for each op, for each unit's forward and backward, or
// once.
std::size_t expected_loads(const Problem& problem, const Draft& draft, BucketId bucket, LoadChoice choice) {
  std::size_t loads = 0;
  std::optional<std::size_t> last;
  const auto key = [&](std::size_t p) {
    const Op& op = problem.graph->op(draft.sequence[p].op);
    return std::pair(op.unit, op.phase == Phase::forward && !draft.sequence[p].recompute);
  };
  for (std::size_t p = 0; p < draft.sequence.size(); ++p) {
    const std::span<const BucketOperand> operands = problem.layout.operands_of(draft.sequence[p].op);
    if (std::none_of(operands.begin(), operands.end(),
                     [&](const BucketOperand& operand) { return operand.bucket == bucket; }))
      continue;
    const bool stays = last && (choice == LoadChoice::held || p == *last + 1 ||
                                (choice == LoadChoice::each_unit && key(p) == key(*last)));
    if (!stays) ++loads;
    last = p;
  }
  return loads;
}

// Whatever is chosen: each use has one lifetime, loads are as many as chosen, values that stay do not move,
// and the validator finds each value where it is read.
TEST(Lifetimes, OfRandomChoicesAreWhatWasChosenAndValid) {
  std::mt19937 random(3);
  for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(640, 20); ++seed) {
    SCOPED_TRACE(seed);
    testing::RandomGraphOptions options;
    if (seed % 4 < 2) options.share = {0, 2};  // of a rank: gathers are made anew for each unit
    const Graph graph = testing::random_graph(seed, options);
    const Machine machine;
    const Problem problem = make_problem(graph, machine, {.target_bytes = seed % 2 == 0 ? 0U : 4096U});
    const Choices choices = random_choices(problem, random);
    const Draft draft = make_lifetimes(graph, problem.analysis, problem.layout, choices);
    const std::vector<std::uint32_t> stages = draft.stages(graph);
    const auto is_backward = [&](std::size_t p) {
      return draft.sequence[p].recompute || graph.op(draft.sequence[p].op).phase == Phase::backward;
    };
    std::vector<std::uint32_t> last_stage(draft.lifetimes.size(), no_id);
    for (std::size_t p = 0; p < draft.sequence.size(); ++p) {
      std::vector<BucketId> touched, used;
      for (const BucketOperand& operand : problem.layout.operands_of(draft.sequence[p].op))
        touched.push_back(operand.bucket);
      for (LifetimeId id : draft.uses.at(static_cast<Position>(p))) {
        const BucketId bucket = draft.lifetimes[id].bucket;
        used.push_back(bucket);
        const bool leaves = problem.layout.roles[bucket] == BucketRole::activation && is_backward(p) &&
                            choices.activations[bucket] < ActivationChoice::offload;
        if (last_stage[id] != no_id && leaves) {
          EXPECT_LE(stages[p], last_stage[id] + 1) << "idle through a stage of backward";
        }
        last_stage[id] = is_backward(p) ? stages[p] : no_id;
      }
      EXPECT_THAT(used, ::testing::UnorderedElementsAreArray(touched));
    }
    std::vector<std::size_t> loads(problem.layout.buckets.size()), offloads = loads;
    for (const DraftLifetime& lifetime : draft.lifetimes) {
      loads[lifetime.bucket] += lifetime.prefetched ? 1 : 0;
      offloads[lifetime.bucket] += lifetime.offloaded ? 1 : 0;
    }
    for (BucketId id = 0; id < loads.size(); ++id) {
      const BucketRole role = problem.layout.roles[id];
      if (role == BucketRole::parameter || role == BucketRole::input) {
        const bool resident = choices.loads[id] == LoadChoice::resident;
        EXPECT_EQ(loads[id], resident ? 0 : expected_loads(problem, draft, id, choices.loads[id])) << id;
      }
      if (role == BucketRole::activation && choices.activations[id] == ActivationChoice::keep) {
        EXPECT_EQ(loads[id] + offloads[id], 0U) << id;
      }
      if (role == BucketRole::activation) {
        EXPECT_LE(offloads[id], loads[id]) << id;
      }
    }
    for (const Draft& scheduled :
         {schedule_serially(draft), Sketcher(problem, choices).within(unlimited, 0).draft})
      EXPECT_THAT(validate(graph, complete(problem, scheduled), {}), ::testing::IsEmpty());
  }
}

}  // namespace
}  // namespace stowage
