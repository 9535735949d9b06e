// Joint launches of updates: which commits go together, and that steps keep their bits.
#include "offload/engine/joint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/fault_sweep.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"
#include "tests/support/sliced_plans.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::ElementsAre;

constexpr std::uint64_t steps = 4;
using Groups = std::vector<std::vector<InstructionId>>;

std::size_t joint_launches = 0, joint_members = 0;

// As on a card: in any order, here the last first.
void update_together(std::span<const LaunchArguments> updates) {
  ++joint_launches;
  joint_members += updates.size();
  EXPECT_LE(updates.size(), most_joint_updates);
  const LaunchTable table = cpu_launch_table();
  for (std::size_t i = updates.size(); i-- > 0;) table.find (*updates[i].op)(updates[i]);
}

LaunchTable table_with_joint_updates() {
  LaunchTable table = cpu_launch_table();
  table.add_joint("adamw", update_together);
  return table;
}

Graph gpt_of(std::int64_t layers, Moments moments = Moments::f32) {
  GraphBuilder builder(DataType::f32);
  const BuiltModel model =
      gpt(builder, {.layers = layers, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4, .batch = 2});
  AdamW optimizer;
  optimizer.moments = moments;
  return builder.finish(model.loss, optimizer);
}

Plan plan_on_device(const Graph& graph) {
  return std::get<Plan>(quick_plan(graph, {}, {}, {.policy = Policy::none}));
}

std::vector<std::size_t> sizes_of(const Groups& groups) {
  std::vector<std::size_t> sizes;
  for (const auto& group : groups) sizes.push_back(group.size());
  return sizes;
}

TEST(JointUpdates, AreTheCommitsOfAStepOnTheDevice) {
  const Graph graph = gpt_of(12);  // 148 parameters
  EXPECT_THAT(sizes_of(joint_updates(graph, plan_on_device(graph), table_with_joint_updates())),
              ElementsAre(64, 64, 20));
}

TEST(JointUpdates, NeedAJointKernel) {
  const Graph graph = gpt_of(1);
  LaunchTable table = table_with_joint_updates();
  table.add("adamw", table.find_if_present("adamw"));  // of one's own
  EXPECT_THAT(joint_updates(graph, plan_on_device(graph), table), ElementsAre());
}

// Matrices have moments of 8 bits, vectors of 32.
TEST(JointUpdates, OfOperandsOfOtherTypesAreApart) {
  const Graph graph = gpt_of(1, Moments::eight_bit);
  const Groups groups = joint_updates(graph, plan_on_device(graph), table_with_joint_updates());
  EXPECT_THAT(sizes_of(groups), ::testing::UnorderedElementsAre(6, 10));
  for (const auto& group : groups) EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
}

// Commits on the compute lane of updates `first` and `second` of a step that is all on the device, with what
// `change` makes of the plan.
template <class Change>
Groups joint_after(const Change& change) {
  const Graph graph = gpt_of(1);
  Plan plan = plan_on_device(graph);
  const Groups before = joint_updates(graph, plan, table_with_joint_updates());
  EXPECT_THAT(sizes_of(before), ElementsAre(16));
  change(plan, before.front());
  return joint_updates(graph, plan, table_with_joint_updates());
}

TEST(JointUpdates, EndWhereOneWaitsForMore) {
  EXPECT_THAT(sizes_of(joint_after([](Plan& plan, const auto& commits) {
                plan.instructions[commits[5]].waits.push_back({commits[0] - 1, 1});
              })),
              ElementsAre(5, 11));
  EXPECT_THAT(sizes_of(joint_after([](Plan& plan, const auto& commits) {  // which the first waits for too
                for (const int each : {0, 5})
                  plan.instructions[commits[each]].waits.push_back({commits[0] - 1, 1});
              })),
              ElementsAre(16));
}

TEST(JointUpdates, EndBehindOneThatIsAwaited) {
  EXPECT_THAT(sizes_of(joint_after([](Plan& plan, const auto& commits) {
                Instruction copy{InstructionKind::prefetch, LaneRole::h2d, no_id, 0};
                copy.waits.push_back({commits[5], 0});
                plan.instructions.push_back(copy);
              })),
              ElementsAre(6, 10));
}

// Which may have the bytes of one that the commit before was the last to use.
TEST(JointUpdates, EndWhereOneBeginsALifetime) {
  EXPECT_THAT(sizes_of(joint_after([](Plan& plan, const auto& commits) {
                plan.instructions[commits[5]].uses.push_back(static_cast<LifetimeId>(plan.lifetimes.size()));
                plan.lifetimes.push_back({0, 0, 0, 0, commits[6]});
              })),
              ElementsAre(5, 11));
}

TEST(JointUpdates, EndAtTheGate) {
  EXPECT_THAT(sizes_of(joint_after([](Plan& plan, const auto& commits) { plan.gate = commits[5] - 1; })),
              ElementsAre(5, 11));
}

TEST(JointUpdates, LeaveTheBitsOfStepsWithout) {
  joint_launches = joint_members = 0;
  std::uint64_t apart = 0;
  for (std::uint64_t seed = 0; seed < draws(12U, 4U); ++seed) {
    const Graph graph =
        seed % 2 == 0 ? sliced_gpt() : gpt_of(3, seed % 4 == 1 ? Moments::bf16 : Moments::eight_bit);
    const std::int32_t range = seed % 2 == 0 ? sliced_vocabulary : 16;
    const Machine machine = random_machine(seed);
    Planner planner = quick_planner(graph, machine);
    const Bytes budget = random_budget(seed, planner.minimum_bytes(), planner.need_bytes());
    const Plan plan = std::get<Plan>(planner.answer({.device = budget}).outcome);
    apart += static_cast<std::uint64_t>(std::count_if(
        plan.instructions.begin(), plan.instructions.end(),
        [](const Instruction& each) { return each.kind == InstructionKind::commit && runs_on_host(each); }));
    const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
    EngineOptions options;
    options.seed = run_seed;
    options.kernels = table_with_joint_updates();
    Engine engine(*device, graph, plan, options);
    EXPECT_TRUE(run_engine(engine, graph, steps, range) ==
                run_evaluator(graph, cpu_launch_table(), steps, range))
        << "seed " << seed;
  }
  EXPECT_GT(apart, 0U);
  EXPECT_GT(joint_launches, 0U);
  EXPECT_GT(joint_members, 2 * joint_launches);
}

// A launch that fails has made none of its updates; one that was made is not made again.
TEST(JointUpdates, AreMadeOnceWhateverFails) {
  const Graph graph = smallest_gpt(1);
  EXPECT_GT(sweep_faults({graph, plan_on_device(graph), table_with_joint_updates()}), 50);
}

}  // namespace
}  // namespace stowage
