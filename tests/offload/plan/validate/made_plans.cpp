#include "tests/offload/plan/validate/made_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage::testing {
namespace {

void make_plans(const std::string& name, const Graph& graph, std::uint64_t seed,
                const std::function<void(const MadePlan&)>& use, std::optional<MicroBatchOrder> order = {}) {
  const Machine machine = random_machine(seed);
  Machine far = machine;  // so far away that recomputing is better than moving
  far.h2d.bytes_per_second = far.d2h.bytes_per_second = 1e5;
  Planner planner = quick_planner(graph, machine, {.order = order});
  Planner slow_link = quick_planner(graph, far, {.order = order});
  Planner none = quick_planner(graph, machine, {.policy = Policy::none, .order = order});
  const Bytes minimum = planner.minimum_bytes();
  const Bytes need = std::max(minimum, none.minimum_bytes());
  const auto make = [&](const std::string& which, Planner& by, Bytes device) {
    const Budget budget{device, unlimited};
    const auto result = by.answer(budget).outcome;
    const Plan* plan = std::get_if<Plan>(&result);
    ASSERT_NE(plan, nullptr) << name << which;
    use({name + which, graph, *plan, budget});
  };
  make(" at its minimum", planner, minimum);
  make(" at a random budget", planner, random_budget(seed, minimum, need));
  make(" behind a slow link", slow_link, minimum + (need - minimum) / 2);
  make(" with policy none", none, need);
}

Graph small_gpt(std::int64_t micro_batches) {
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, {.layers = 2,
                                         .width = 32,
                                         .heads = 2,
                                         .vocabulary = 64,
                                         .sequence = 16,
                                         .batch = 2,
                                         .micro_batches = micro_batches});
  return builder.finish(model.loss, {});
}

}  // namespace

void for_each_made_plan(std::uint64_t first, std::uint64_t last,
                        const std::function<void(const MadePlan&)>& use) {
  const std::uint64_t end = first + draws(last - first, (last - first) / 4);
  for (std::uint64_t seed = first; seed < end; ++seed) {
    make_plans("random graph " + std::to_string(seed), random_graph(seed), seed, use);
  }
  make_plans("GPT", small_gpt(1), first, use);
  for (MicroBatchOrder order : {MicroBatchOrder::layer_major, MicroBatchOrder::ahead(1)})
    make_plans("GPT " + std::string(to_string(order)), small_gpt(2), first, use, order);
}

std::string joined(const std::vector<std::string>& findings) {
  std::string text;
  for (const std::string& finding : findings) text += finding + "\n";
  return text;
}

}  // namespace stowage::testing
