// Planning ends where PlanOptions::stop asks for it: before it begins, between two of its passes, and from
// another thread.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "offload/plan/bound/bound.h"
#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/decisions/residency_program.h"
#include "offload/plan/schedule/places.h"
#include "stowage/error.h"
#include "tests/support/chain_graph.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

TEST(Stop, BeforePlanningBegins) {
  const Graph graph = testing::chain_graph();
  const Machine machine;
  const Plan expected = std::get<Plan>(make_plan(graph, machine, {}));
  for (const Policy policy : every_policy) {
    SCOPED_TRACE(to_string(policy));
    std::stop_source source;
    const PlanOptions options{.policy = policy, .stop = source.get_token()};
    EXPECT_NO_THROW(make_plan(graph, machine, {}, options));
    source.request_stop();
    EXPECT_THROW(make_plan(graph, machine, {}, options), Cancelled);
    EXPECT_THROW(minimum_bytes(graph, machine, options), Cancelled);
  }
  EXPECT_EQ(std::get<Plan>(make_plan(graph, machine, {})), expected);
}

// A planner that has made more and more of what it keeps.
TEST(Stop, BetweenTwoQuestionsToAPlanner) {
  const Graph graph = testing::random_graph(3, {.micro_batches = 2});
  const Machine machine;
  const Bytes minimum = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
  const Budget budget{(minimum + need) / 2};
  const Plan expected = std::get<Plan>(make_plan(graph, machine, budget));
  const std::vector<std::function<void(Planner&)>> before{
      [](Planner&) {}, [&](Planner& planner) { EXPECT_EQ(planner.need_bytes(), need); },
      [&](Planner& planner) { EXPECT_EQ(planner.minimum_bytes(), minimum); },
      [&](Planner& planner) { planner.answer({minimum}); }, [&](Planner& planner) { planner.answer({}); }};
  for (const auto& ask : before) {
    std::stop_source source;
    Planner planner(graph, machine, {.stop = source.get_token()});
    ask(planner);
    source.request_stop();
    EXPECT_THROW(planner.answer(budget), Cancelled);
  }
  EXPECT_EQ(std::get<Plan>(make_plan(graph, machine, budget)), expected);
}

TEST(Stop, FromAnotherThreadWhilePlanning) {
  const Graph graph = testing::chain_graph({.units = 6});
  const Machine machine;
  const Budget budget{(minimum_bytes(graph, machine) + need_bytes(graph, machine)) / 2};
  const Plan expected = std::get<Plan>(make_plan(graph, machine, budget));
  std::stop_source source;
  std::thread planning([&] {
    // Plans again and again until it is stopped: without an end the test runs out of its time.
    EXPECT_THROW(for (;;) make_plan(graph, machine, budget, {.stop = source.get_token()}), Cancelled);
  });
  source.request_stop();
  planning.join();
  EXPECT_EQ(std::get<Plan>(make_plan(graph, machine, budget)), expected);
}

// So that no run of passes is long without a look.
TEST(Stop, IsLookedAtByEveryPass) {
  const Graph graph = testing::chain_graph();
  const Machine machine;
  Problem problem = make_problem(graph, machine, {});
  const Choices choices = resident_choices(problem);
  const Sketcher sketcher(problem, choices);
  const Sketch sketch = sketcher.serial();
  const PlannerSettings settings;
  const ResidencyProgram program(problem, settings);
  const std::vector<Bytes> offsets = [&] {
    std::vector<Bytes> at;
    for (const Lifetime& lifetime : complete(problem, sketch.draft).lifetimes) at.push_back(lifetime.offset);
    return at;
  }();
  std::stop_source source;
  const std::vector<std::function<void()>> passes{
      [&] { make_problem(graph, machine, {}, MicroBatchOrder::layer_major, source.get_token()); },
      [&] { sketcher.serial(); },
      [&] { sketcher.within(unlimited, 0); },
      [&] { sketcher.ahead(2); },
      [&] { estimated_seconds(problem, sketch); },
      [&] { least_seconds(problem, sketch.draft); },
      [&] { complete(problem, sketch.draft); },
      [&] { complete_at(problem, sketch.draft, offsets); },
      [&] { placed_low(problem, sketch.draft); },
      [&] { placed_within(problem, sketch.draft, unlimited, settings); },
      [&] { lower_bound(problem, {}); },
      [&] { program.solve(unlimited, unlimited); },
      [&] { program.least_host(unlimited); },
      [&] { ResidencyProgram(problem, settings); },
      [&] { minimum_candidates(problem); }};
  problem.stop = source.get_token();
  for (const auto& pass : passes) EXPECT_NO_THROW(pass());
  source.request_stop();
  for (std::size_t i = 0; i < passes.size(); ++i) EXPECT_THROW(passes[i](), Cancelled) << i;
}

}  // namespace
}  // namespace stowage
