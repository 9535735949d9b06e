#include "offload/plan/search/cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/decisions/prices.h"
#include "offload/plan/problem/settings.h"
#include "offload/plan/schedule/candidate.h"
#include "stowage/graph_builder.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/offload/plan/large_graph.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

constexpr std::uint64_t graphs = testing::draws<std::uint64_t>(12, 2);

// Returns the time by which plans are compared.
double ranked_seconds(const Graph& graph, const Machine& machine, const Plan& plan) {
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  return ranked(plan, problem, {}).ranked_seconds;
}

std::vector<Bytes> ladder(Bytes least, Bytes most) {
  std::vector<Bytes> budgets;
  for (Bytes part = 0; part <= 10; ++part)
    budgets.push_back(least + (std::max(most, least) - least) * part * part / 100);
  return budgets;
}

// Counts budgets whose plans are slower than those of less memory.
struct Rises {
  int budgets = 0, above = 0;  // above: budgets that are slower by more than close_enough
  double worst = 0;
  void add(double seconds, double& least) {
    ++budgets;
    const double rise = seconds / least - 1;
    above += rise > PlannerSettings{}.close_enough ? 1 : 0;
    worst = std::max(worst, rise);
    least = std::min(least, seconds);
  }
};

// More memory is never slower by more than close_enough: a larger budget has the same cells, and more.
TEST(Cells, MoreDeviceMemoryIsNotSlower) {
  Rises rises;
  for (std::uint64_t seed = 100; seed < 100 + graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::any_machine(seed);
    const Bytes minimum = minimum_bytes(graph, machine);
    double least = std::numeric_limits<double>::infinity();
    std::vector<Bytes> budgets = ladder(minimum, need_bytes(graph, machine));
    budgets.push_back(unlimited);
    for (const Bytes budget : budgets) {
      const auto planned = make_plan(graph, machine, {budget, unlimited});
      ASSERT_TRUE(std::holds_alternative<Plan>(planned)) << budget;
      const Plan& plan = std::get<Plan>(planned);
      EXPECT_LE(plan.device_peak_bytes, budget);
      EXPECT_TRUE(validate(graph, plan, {budget, unlimited}).empty()) << budget;
      EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9)) << budget;
      rises.add(ranked_seconds(graph, machine, plan), least);
    }
  }
  EXPECT_EQ(rises.above, 0) << "of " << rises.budgets << ", the worst by " << rises.worst;
}

// At this minimum no limit ends the search, and the bound is far below the plan.
TEST(Cells, AnAnswerSaysWhetherALimitEndedTheSearch) {
  const Graph graph = testing::random_graph(101);
  const Machine machine = testing::any_machine(101);
  const auto is_complete = [&](const PlannerSettings& settings) {
    Planner planner(graph, machine, {.settings = std::make_shared<PlannerSettings>(settings)});
    return planner.answer({planner.minimum_bytes(), unlimited}).is_complete;
  };
  EXPECT_TRUE(is_complete({}));
  EXPECT_FALSE(is_complete({.most_cell_work = 1}));
  EXPECT_FALSE(is_complete({.most_work = 1, .smallest_work = 1}));
}

// At the minimum, this graph's candidate of least host memory finds places only under a smaller cap, and then
// takes 4 bytes more of the host.
TEST(Cells, HostBudgetsAreOfPlacedPlans) {
  const Graph graph = testing::random_graph(2);
  const Machine machine = testing::any_machine(2);
  const Bytes device = minimum_bytes(graph, machine);
  Planner planner(graph, machine, {});
  const auto outcome_in = [&](Bytes host) { return planner.answer({device, host}).outcome; };
  const Bytes least = std::get<Infeasible>(outcome_in(1)).minimum;
  const auto plan = outcome_in(least), none = outcome_in(least - 1);
  ASSERT_TRUE(std::holds_alternative<Plan>(plan));
  EXPECT_EQ(std::get<Plan>(plan).host_bytes, least);
  ASSERT_TRUE(std::holds_alternative<Infeasible>(none));
  EXPECT_EQ(std::get<Infeasible>(none).minimum, least);
}

// For this model, the plan without a limit and one search for few host bytes would name more bytes.
TEST(Cells, ARefusalNamesTheFewestHostBytes) {
  GraphBuilder builder(DataType::bf16);
  const BuiltModel model = gpt(
      builder, {.layers = 3, .width = 256, .heads = 4, .vocabulary = 50304, .sequence = 1024, .batch = 8});
  const Graph graph = builder.finish(model.loss, AdamW{});
  const Machine machine;
  const Bytes minimum = minimum_bytes(graph, machine);
  const Bytes device = minimum + (need_bytes(graph, machine) - minimum) / 10;
  const auto outcome_in = [&](Bytes host) { return make_plan(graph, machine, {device, host}); };
  const auto named = std::get<Infeasible>(outcome_in(1));
  EXPECT_TRUE(named.host);
  EXPECT_FALSE(named.at_most);
  for (const double share : {1.0, 1.005, 1.02, 1.1, 1.5}) {
    const auto host = static_cast<Bytes>(static_cast<double>(named.minimum) * share);
    const auto planned = outcome_in(host);
    ASSERT_TRUE(std::holds_alternative<Plan>(planned)) << share;
    EXPECT_LE(std::get<Plan>(planned).host_bytes, host);
  }
  const auto less = outcome_in(named.minimum - named.minimum / 99);
  ASSERT_TRUE(std::holds_alternative<Infeasible>(less));
  EXPECT_EQ(std::get<Infeasible>(less).minimum, named.minimum);
}

TEST(Cells, MoreHostMemoryIsNotSlower) {
  Rises rises;
  for (std::uint64_t seed = 200; seed < 200 + graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::any_machine(seed);
    const Bytes minimum = minimum_bytes(graph, machine);
    const Bytes device = testing::random_budget(seed, minimum, need_bytes(graph, machine));
    const auto none = make_plan(graph, machine, {device, 0});
    ASSERT_TRUE(std::holds_alternative<Infeasible>(none));
    const Bytes least_host = std::get<Infeasible>(none).minimum;
    const auto freely = std::get<Plan>(make_plan(graph, machine, {device, unlimited}));
    double least = std::numeric_limits<double>::infinity();
    std::vector<Bytes> hosts = ladder(least_host, freely.host_bytes);
    hosts.push_back(unlimited);
    for (const Bytes host : hosts) {
      const auto planned = make_plan(graph, machine, {device, host});
      ASSERT_TRUE(std::holds_alternative<Plan>(planned)) << host;
      const Plan& plan = std::get<Plan>(planned);
      EXPECT_LE(plan.host_bytes, host);
      EXPECT_TRUE(validate(graph, plan, {device, host}).empty()) << host;
      rises.add(ranked_seconds(graph, machine, plan), least);
    }
  }
  EXPECT_EQ(rises.above, 0) << "of " << rises.budgets << ", the worst by " << rises.worst;
}

// The results of schedules are known from cells with other host memory and are what a cell finds by itself.
// The same choices of another problem, with a slower link, have other results.
TEST(Cells, WhatWasTriedWithOtherHostMemoryHolds) {
  const PlannerSettings settings;
  std::size_t tried_before = 0;
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::any_machine(seed);
    Machine slower = machine;
    slower.h2d.bytes_per_second /= 3;
    const std::array problems{make_problem(graph, machine, {.target_bytes = 0}),
                              make_problem(graph, slower, {.target_bytes = 0})};
    std::vector<std::unique_ptr<CellVariant>> variants;
    for (const Problem& problem : problems)
      variants.push_back(
          std::make_unique<CellVariant>(CellVariant{&problem, ResidencyProgram(problem, settings)}));
    const Bytes device = machine.arena_in(minimum_bytes(graph, machine)) * 5 / 4;
    const Bytes most_host = variants.front()->program.most_host_bytes();
    TriedChoices together;
    for (const CellSize& size : {CellSize{device, unlimited}, CellSize{device, most_host / 2},
                                 CellSize{device, 0, true}, CellSize{device, most_host / 3}}) {
      const Bytes host = size.host;
      TriedChoices alone;
      CellSearch search_together, search_alone;
      const auto found = find_candidates(variants, size, settings, together, search_together);
      const auto wanted = find_candidates(variants, size, settings, alone, search_alone);
      ASSERT_EQ(found.size(), wanted.size()) << host;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].problem, wanted[i].problem) << host << " " << i;
        EXPECT_EQ(found[i].choices, wanted[i].choices) << host << " " << i;
        EXPECT_EQ(found[i].seconds, wanted[i].seconds) << host << " " << i;
        EXPECT_EQ(found[i].host_bytes, wanted[i].host_bytes) << host << " " << i;
        EXPECT_EQ(found[i].serial_bytes, wanted[i].serial_bytes) << host << " " << i;
      }
      EXPECT_EQ(search_together.most_host, search_alone.most_host) << host;
      EXPECT_LE(search_together.sketches, search_alone.sketches) << host;
      tried_before += search_alone.sketches - search_together.sketches;
    }
  }
  EXPECT_GT(tried_before, 0U);
}

// Budgets are asked from the largest to the smallest: cells make their plans when a budget first
// asks for them.
TEST(Cells, WhatOtherBudgetsAskedForMakesNoAnswerSlowerByMoreThanIsCloseEnough) {
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::any_machine(seed);
    Planner planner(graph, machine);
    std::vector<Bytes> budgets = ladder(planner.minimum_bytes(), planner.need_bytes());
    budgets.insert(budgets.begin(), budgets.front() / 2);  // infeasible
    for (auto budget = budgets.rbegin(); budget != budgets.rend(); ++budget) {
      const auto together = planner.answer({*budget, unlimited}).outcome,
                 again = planner.answer({*budget, unlimited}).outcome;
      const auto alone = make_plan(graph, machine, {*budget, unlimited});
      ASSERT_EQ(together.index(), alone.index()) << *budget;
      if (together.index() != 0) continue;
      EXPECT_EQ(std::get<Plan>(together), std::get<Plan>(again)) << *budget;
      const double seconds = ranked_seconds(graph, machine, std::get<Plan>(together));
      const double of_alone = ranked_seconds(graph, machine, std::get<Plan>(alone));
      EXPECT_LE(seconds, (1 + PlannerSettings{}.close_enough) * of_alone) << *budget;
    }
  }
}

// Each budget is offered the plans of those before.
TEST(Cells, BudgetsThatRiseGetNoPlanOfMoreTimeAndPriceThanOneBefore) {
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::any_machine(seed);
    PlannerSettings hasty;  // reaches its limits at once, instead of looking at all cells again
    hasty.most_work = hasty.patience = hasty.longest_work = 1;
    Planner planner(graph, machine, {.settings = std::make_shared<PlannerSettings>(hasty)});
    double before = std::numeric_limits<double>::infinity();
    for (const Bytes budget : ladder(planner.minimum_bytes(), planner.need_bytes())) {
      const auto outcome = planner.answer({budget, unlimited}).outcome;
      ASSERT_TRUE(std::holds_alternative<Plan>(outcome));
      const double seconds = ranked_seconds(graph, machine, std::get<Plan>(outcome));
      EXPECT_LE(seconds, before) << budget;
      before = seconds;
    }
  }
}

// A budget of the host bytes that a plan without a limit takes has nearly its step, though the grid of host
// memory does not have this amount.
TEST(Cells, TheHostBytesOfAFreePlanDoForOneAsFast) {
  GraphBuilder builder(DataType::bf16);
  const BuiltModel model = gpt(builder, {.layers = 4, .width = 256, .heads = 8, .sequence = 256, .batch = 4});
  const Graph graph = builder.finish(model.loss, AdamW{});
  const Machine machine = testing::large_graph_machine();
  Planner planner(graph, machine);
  for (const Bytes device : {planner.minimum_bytes(), planner.minimum_bytes() * 4 / 3}) {
    const auto freely = std::get<Plan>(make_plan(graph, machine, {device, unlimited}));
    const auto within = std::get<Plan>(make_plan(graph, machine, {device, freely.host_bytes}));
    EXPECT_LE(ranked_seconds(graph, machine, within), 1.02 * ranked_seconds(graph, machine, freely))
        << device;
  }
}

TEST(Cells, ATransferCostsMoreWhereTheDeviceComputesWithTheHostsCores) {
  const PlannerSettings settings{.transfer_risk = 0.5, .transfer_risk_on_cores = 4};
  Machine machine;
  machine.h2d.latency_seconds = 2;
  EXPECT_EQ(transfer_price(machine, settings), 1);
  for (double Machine::*kept :
       {&Machine::compute_beside_copy, &Machine::compute_beside_host, &Machine::host_beside_compute}) {
    Machine on_cores = machine;
    on_cores.*kept = 0.9;
    EXPECT_EQ(transfer_price(on_cores, settings), 8);
  }
  const Graph graph = testing::random_graph(3);
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const Plan plan = complete(problem, Sketcher(problem, lowest_choices(problem)).serial().draft);
  const auto transfers =
      std::count_if(plan.instructions.begin(), plan.instructions.end(),
                    [](const Instruction& instruction) { return is_transfer(instruction.kind); });
  EXPECT_GT(ranked(plan, problem, settings).ranked_seconds,
            plan.predicted_step_seconds + static_cast<double>(transfers) - 1e-6);
}

}  // namespace
}  // namespace stowage
