#include "offload/plan/validate/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "stowage/planner.h"
#include "tests/offload/plan/validate/made_plans.h"
#include "tests/offload/plan/validate/small_plans.h"

namespace stowage {
namespace {

using testing::joined;
using testing::MadePlan;

// Returns the findings of the value pass alone, since other passes must not hide what it misses.
std::string value_findings(const Graph& graph, const Plan& plan) {
  validation::Report report(graph, plan);
  const validation::Places places = validation::check_buckets(graph, plan, report);
  const validation::Order order(plan, report);
  EXPECT_TRUE(report.empty()) << joined(report.take());
  validation::check_values(graph, plan, places, order, report);
  return joined(report.take());
}

// Breaks the plan at every instruction of the kind, and counts.
int break_each(const MadePlan& made, InstructionKind kind,
               const std::function<bool(Plan&, InstructionId)>& apply) {
  int breaks = 0;
  for (InstructionId id = 0; id < made.plan.instructions.size(); ++id) {
    if (made.plan.instructions[id].kind != kind) continue;
    Plan plan = made.plan;
    if (!apply(plan, id)) continue;
    EXPECT_NE(value_findings(made.graph, plan), "") << made.name << ": instruction " << id;
    ++breaks;
  }
  return breaks;
}

bool remove(Plan& plan, InstructionId id) {
  if (id == plan.gate) return false;
  testing::remove_instruction(plan, id);
  return true;
}

TEST(Values, MissWhateverIsRemoved) {
  int prefetches = 0, offloads = 0, recomputes = 0, launches = 0, commits = 0;
  testing::for_each_made_plan(4000, 4020, [&](const MadePlan& made) {
    prefetches += break_each(made, InstructionKind::prefetch, remove);
    offloads += break_each(made, InstructionKind::offload, remove);
    commits += break_each(made, InstructionKind::commit, remove);
    recomputes += break_each(made, InstructionKind::recompute, remove);
    launches += break_each(made, InstructionKind::launch, remove);
  });
  for (const int count : {prefetches, offloads, launches, commits}) EXPECT_GT(count, 100);
  EXPECT_GT(recomputes, 20);
}

TEST(Values, EveryUpdateDoneTwiceIsFound) {
  int breaks = 0;
  testing::for_each_made_plan(4020, 4040, [&](const MadePlan& made) {
    for (InstructionId id = made.plan.gate + 1; id < made.plan.instructions.size(); ++id) {
      if (made.plan.instructions[id].op == no_id) continue;
      Plan plan = made.plan;
      testing::insert_copy(plan, id, id + 1);
      EXPECT_THAT(value_findings(made.graph, plan), ::testing::HasSubstr("applied twice"))
          << made.name << " " << id;
      ++breaks;
    }
  });
  EXPECT_GT(breaks, 200);
}

TEST(Values, EveryUseOfAnotherLifetimeOfTheBucketIsFound) {
  int breaks = 0;
  testing::for_each_made_plan(4040, 4060, [&](const MadePlan& made) {
    for (InstructionId id = 0; id < made.plan.instructions.size(); ++id) {
      for (std::size_t use = 0; use < made.plan.instructions[id].uses.size(); ++use) {
        const LifetimeId right = made.plan.instructions[id].uses[use];
        for (LifetimeId wrong = 0; wrong < made.plan.lifetimes.size(); ++wrong) {
          if (wrong == right || made.plan.lifetimes[wrong].bucket != made.plan.lifetimes[right].bucket)
            continue;
          Plan plan = made.plan;
          plan.instructions[id].uses[use] = wrong;
          EXPECT_NE(joined(validate(made.graph, plan, made.budget)), "") << made.name << " " << id;
          ++breaks;
        }
      }
    }
  });
  EXPECT_GT(breaks, 200);
}

TEST(Values, EveryGateThatPassesBeforeALandingIsFound) {
  int breaks = 0;
  testing::for_each_made_plan(4060, 4080, [&](const MadePlan& made) {
    const Plan& good = made.plan;
    for (InstructionId id = 0; id < good.gate; ++id) {
      if (good.instructions[id].kind != InstructionKind::offload) continue;
      if (good.buckets[good.lifetimes[good.instructions[id].lifetime].bucket].kind != TensorKind::gradient)
        continue;
      Plan plan = good;
      for (Instruction& other : plan.instructions) {
        std::erase_if(other.waits,
                      [&](const Wait& wait) { return wait.instruction == id && wait.steps_back == 0; });
      }
      testing::move_instruction(plan, id, plan.gate);
      EXPECT_THAT(value_findings(made.graph, plan), ::testing::HasSubstr("gradient lost"))
          << made.name << " " << id;
      ++breaks;
    }
  });
  EXPECT_GT(breaks, 50);
}

TEST(Values, BytesAreDeadAfterTheirEndThoughNobodyElseHasThem) {
  const Graph graph = testing::small_graph();
  Plan plan = testing::small_streamed_plan();
  plan.lifetimes[9].end = 12;  // g.backward, and f.backward is still to come
  EXPECT_EQ(value_findings(graph, plan),
            "instruction 13 (launch of op 'f.backward') reads 'dh' on the device: the value is not there\n");
}

TEST(Values, AValueOverwrittenInPlaceIsGone) {
  Graph graph = testing::small_graph();
  graph.ops[6].reads[1] = graph.ops[5].reads[1];  // f.backward reads dx1, which g.backward has replaced
  EXPECT_EQ(
      value_findings(graph, testing::small_streamed_plan()),
      "instruction 13 (launch of op 'f.backward') reads 'dx1' on the device: 'dh' stands there instead\n");
}

TEST(Values, AnUpdateThatIsNeverReadBackLeavesTheParameterStale) {
  const Graph graph = testing::small_graph();
  Plan plan = testing::small_resident_plan();
  plan.lifetimes[1].end = 2;  // W dies with its first use, and nothing brings it back
  EXPECT_THAT(value_findings(graph, plan),
              ::testing::HasSubstr("commit of op 'adamw') reads 'W' on the device: the value is not there"));
}

}  // namespace
}  // namespace stowage
