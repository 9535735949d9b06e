#include "offload/plan/validate/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <random>
#include <set>

#include "stowage/planner.h"
#include "tests/offload/plan/validate/made_plans.h"
#include "tests/offload/plan/validate/small_plans.h"

namespace stowage {
namespace {

using testing::joined;
using testing::MadePlan;

// Returns whether instruction `from` of an earlier step (or the same) is ordered before `to` of the last of
// three steps. Walks backwards over lane order, the gate and the waits, without the validator's code.
bool ordered(const Plan& plan, InstructionId from, std::uint32_t steps_back, InstructionId to) {
  using Node = std::pair<int, InstructionId>;  // step, instruction
  std::set<Node> seen;
  std::vector<Node> open{{2, to}};
  const Node goal{2 - static_cast<int>(steps_back), from};
  const auto visit = [&](int step, InstructionId id) {
    if (step >= 0 && seen.insert({step, id}).second) open.push_back({step, id});
  };
  while (!open.empty()) {
    const auto [step, id] = open.back();
    open.pop_back();
    if (step == goal.first && id == goal.second && !(step == 2 && id == to)) return true;
    visit(step - 1, plan.gate);
    if (id > plan.gate) visit(step, plan.gate);
    std::optional<Node> previous;
    for (InstructionId other = 0; other < plan.instructions.size(); ++other) {
      if (plan.instructions[other].lane != plan.instructions[id].lane) continue;
      if (other < id) previous = {step, other};
      if (!previous || (previous->first < step && other >= id)) previous = {step - 1, other};
    }
    if (previous) visit(previous->first, previous->second);
    for (const Wait& wait : plan.instructions[id].waits)
      visit(step - static_cast<int>(wait.steps_back), wait.instruction);
  }
  return false;
}

// Takes each wait out in turn. Returns how many removals the validator saw.
int remove_every_wait(const MadePlan& made, int& implied) {
  int caught = 0;
  for (InstructionId id = 0; id < made.plan.instructions.size(); ++id) {
    for (std::size_t which = 0; which < made.plan.instructions[id].waits.size(); ++which) {
      Plan plan = made.plan;
      std::vector<Wait>& waits = plan.instructions[id].waits;
      const Wait wait = waits[which];
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(which));
      const bool found = !validate(made.graph, plan, made.budget).empty();
      const bool still_ordered = ordered(plan, wait.instruction, wait.steps_back, id);
      EXPECT_NE(found, still_ordered) << made.name << ": instruction " << id << " without its wait for "
                                      << wait.instruction << ", " << wait.steps_back << " steps back";
      caught += found ? 1 : 0;
      implied += still_ordered ? 1 : 0;
    }
  }
  return caught;
}

TEST(Accesses, EveryWaitOfTheHandWrittenPlansIsNeeded) {
  const Graph graph = testing::small_graph();
  int implied = 0;
  EXPECT_EQ(remove_every_wait({"streamed", graph, testing::small_streamed_plan(), {}}, implied), 10);
  EXPECT_EQ(remove_every_wait({"resident", graph, testing::small_resident_plan(), {}}, implied), 5);
  EXPECT_EQ(implied, 0);
}

TEST(Accesses, EveryWaitOfAMadePlanIsNeededOrImplied) {
  int caught = 0, implied = 0;
  testing::for_each_made_plan(3000, 3012,
                              [&](const MadePlan& made) { caught += remove_every_wait(made, implied); });
  EXPECT_GT(caught, 500);
  std::printf("%d waits caught, %d implied by others\n", caught, implied);
}

bool overlap(const Plan& plan, const Lifetime& a, const Lifetime& b) {
  return a.first < b.last && b.first < a.last && a.offset < b.offset + plan.buckets[b.bucket].bytes &&
         b.offset < a.offset + plan.buckets[a.bucket].bytes;
}

TEST(Accesses, EveryMoveOntoALiveNeighbourIsFound) {
  int moves = 0;
  testing::for_each_made_plan(3020, 3035, [&](const MadePlan& made) {
    for (LifetimeId id = 0; id + 1 < made.plan.lifetimes.size(); ++id) {
      Plan plan = made.plan;
      plan.lifetimes[id].offset = plan.lifetimes[id + 1].offset;
      if (!overlap(plan, plan.lifetimes[id], plan.lifetimes[id + 1])) continue;
      testing::settle_totals(plan);
      EXPECT_THAT(joined(validate(made.graph, plan, {})), ::testing::HasSubstr("overlap"))
          << made.name << " " << id;
      ++moves;
    }
  });
  EXPECT_GT(moves, 200);
}

TEST(Accesses, EveryEndMovedForwardIsFound) {
  int moves = 0;
  testing::for_each_made_plan(3040, 3055, [&](const MadePlan& made) {
    for (LifetimeId id = 0; id < made.plan.lifetimes.size(); ++id) {
      const InstructionId end = made.plan.lifetimes[id].end;
      for (InstructionId user = 0; user < end && end != no_id; ++user) {
        const Instruction& instruction = made.plan.instructions[user];
        const auto& uses = instruction.uses;
        if (instruction.lifetime != id && std::find(uses.begin(), uses.end(), id) == uses.end()) continue;
        Plan plan = made.plan;
        plan.lifetimes[id].end = user;
        EXPECT_THAT(joined(validate(made.graph, plan, {})), ::testing::HasSubstr("ends with"))
            << made.name << " " << id;
        ++moves;
        break;
      }
    }
  });
  EXPECT_GT(moves, 500);
}

TEST(Accesses, InputsMustBeReadBeforeTheGate) {
  // A second copy of the tokens, behind the gate, races with the next step's tokens.
  const Graph graph = testing::small_graph();
  Plan plan = testing::small_streamed_plan();
  testing::insert_copy(plan, 0, 19);
  EXPECT_THAT(
      joined(validate(graph, plan, {})),
      ::testing::HasSubstr("no wait orders instruction 19 (prefetch of bucket 'tokens') before the caller's "
                           "input of a later step: both touch host bytes of bucket 'tokens'"));
}

TEST(Accesses, GradientsMustNotLandOnThoseOfTheStepBefore) {
  // Without its wait for the step before, W no longer holds back the next gradient.
  const Graph graph = testing::small_graph();
  Plan plan = testing::small_streamed_plan();
  plan.instructions[1].waits.clear();
  EXPECT_THAT(
      joined(validate(graph, plan, {})),
      ::testing::HasSubstr("no wait orders instruction 18 (commit of op 'adamw') before instruction 15 "
                           "(offload of bucket 'W.grad') of a later step: both touch host bytes of bucket "
                           "'W.grad' (gradient lost)"));
}

TEST(ArenaNeighbours, AreThePairsWithBytesInCommon) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Plan plan;
    for (LifetimeId id = 0; id < 40; ++id) {
      plan.buckets.emplace_back().bytes = (1 + random() % 6) * 256;
      Lifetime& lifetime = plan.lifetimes.emplace_back();
      lifetime.bucket = id;
      lifetime.offset = random() % 20 * 256;
    }
    const auto end = [&](LifetimeId id) { return plan.lifetimes[id].offset + plan.buckets[id].bytes; };
    const auto found = validation::arena_neighbours(plan);
    ASSERT_EQ(found.size(), plan.lifetimes.size());
    for (LifetimeId a = 0; a < 40; ++a) {
      std::vector<LifetimeId> expected;
      for (LifetimeId b = 0; b < 40; ++b)
        if (a != b && std::max(plan.lifetimes[a].offset, plan.lifetimes[b].offset) < std::min(end(a), end(b)))
          expected.push_back(b);
      EXPECT_THAT(found[a], ::testing::UnorderedElementsAreArray(expected));
    }
  }
}

}  // namespace
}  // namespace stowage
