// Whether more memory is ever slower: random GPTs and BERTs on random machines, each with two budgets of
// which one has more device memory or, every other time on average, more host memory. A planner of its own
// answers each budget. Prints a line of Markdown for each pair whose predicted step rises by more than 0.2 %,
// or its time with its price. Plans are compared by the latter (PlannerSettings::transfer_risk), so a plan
// that takes longer may be the better one.
//
//   budget_pairs [--seed 101] [--pairs 250]
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>

#include "offload/plan/cells.h"
#include "stowage/error.h"
#include "stowage/machine_file.h"
#include "stowage/planner.h"
#include "tools/choices/machine_choice.h"
#include "tools/choices/model_spec.h"

namespace stowage {
namespace {

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return *(all.begin() + engine_() % all.size());
  }
  bool coin() { return engine_() % 2 == 1; }
  // Between the two, their logarithms evenly spread.
  Bytes between(Bytes least, Bytes most) {
    const double share = std::uniform_real_distribution<double>(0, 1)(engine_);
    const auto low = static_cast<double>(least);
    return static_cast<Bytes>(low * std::pow(static_cast<double>(most) / low, share));
  }

 private:
  std::mt19937_64 engine_;
};

struct Case {
  std::string name;
  Graph graph;
  Machine machine;
};
Case any_case(Draws& draws) {
  const std::string machine = draws.one_of({"v100-16gb", "rtx4090", "a100-80gb", "h200"});
  const std::string shape = fmt::format("{}x{}", draws.one_of({1, 2, 3, 4, 6, 8, 12, 16, 24}),
                                        draws.one_of({64, 128, 256, 512, 768, 1024, 2048}));
  ModelWords words;
  (draws.one_of({0, 1, 2}) > 0 ? words.gpt : words.bert) = shape;
  words.sequence = std::to_string(draws.one_of({64, 128, 256, 512, 1024}));
  const int micro_batches = draws.one_of({1, 1, 1, 2, 3, 4});
  words.micro_batches = std::to_string(micro_batches);
  words.batch = std::to_string(micro_batches * draws.one_of({1, 2, 4, 8}));

  const MachineFile file = read_machine(machine, machines_folder());
  Case made{fmt::format("{} {}, {} x {} in {}, {}", words.gpt.empty() ? "bert" : "gpt", shape, words.batch,
                        words.sequence, words.micro_batches, machine),
            build(*model_spec(words, usual_type(file))),
            {}};
  made.machine = machine_for(file, work_type(made.graph));
  set_op_seconds(file, work_type(made.graph), made.machine, made.graph);
  return made;
}

struct Pair {
  Budget small, large;
};
// None where a plan's host bytes cannot be fewer.
std::optional<Pair> any_pair(const Case& of, Draws& draws) {
  Planner planner(of.graph, of.machine);
  const Bytes need = std::max(planner.need_bytes(), planner.minimum_bytes());
  const Bytes device = draws.between(planner.minimum_bytes(), need);
  if (draws.coin()) return Pair{{device, unlimited}, {draws.between(device, need), unlimited}};
  const auto freely = planner.answer({device, unlimited}).outcome;
  const auto none = planner.answer({device, 0}).outcome;
  const auto* plan = std::get_if<Plan>(&freely);
  const auto* least = std::get_if<Infeasible>(&none);
  if (plan == nullptr || least == nullptr || least->minimum >= plan->host_bytes) return {};
  const Bytes host = draws.between(least->minimum, plan->host_bytes);
  return Pair{{device, host}, {device, draws.between(host, 2 * plan->host_bytes)}};
}

// Infinite where there is no plan.
struct Seconds {
  double step = INFINITY;
  double ranked = INFINITY;  // with its price
};
Seconds seconds(const Case& of, const Budget& budget) {
  auto planned = make_plan(of.graph, of.machine, budget);
  auto* plan = std::get_if<Plan>(&planned);
  if (plan == nullptr) return {};
  Problem problem;
  problem.graph = &of.graph;
  problem.machine = &of.machine;
  const double step = plan->predicted_step_seconds;
  return {step, ranked(std::move(*plan), problem, PlannerSettings{}).ranked_seconds};
}

void run(std::uint64_t seed, int pairs) {
  Draws draws(seed);
  constexpr double allowed = 0.002;
  int rises = 0, of_host = 0, priced_rises = 0, without_plan = 0;
  double worst = 0, worst_priced = 0;
  fmt::print("| step | device bytes | host bytes | rise % | with its price % |\n|---|---|---|---|---|\n");
  for (int done = 0; done < pairs;) {
    const Case of = any_case(draws);
    const std::optional<Pair> pair = any_pair(of, draws);
    if (!pair) continue;
    ++done;
    const Seconds before = seconds(of, pair->small), after = seconds(of, pair->large);
    if (std::isinf(before.step)) {
      ++without_plan;
      continue;
    }
    const double rise = after.step / before.step - 1, priced = after.ranked / before.ranked - 1;
    worst = std::max(worst, rise);
    worst_priced = std::max(worst_priced, priced);
    priced_rises += priced > allowed ? 1 : 0;
    if (std::max(rise, priced) <= allowed) continue;
    rises += rise > allowed ? 1 : 0;
    const bool is_host = pair->small.host != unlimited;
    of_host += is_host && rise > allowed ? 1 : 0;
    const auto [small_host, large_host] = std::pair(pair->small.host, pair->large.host);
    fmt::print("| {} | {} to {} | {} | {:.2f} | {:.2f} |\n", of.name, pair->small.device, pair->large.device,
               is_host ? fmt::format("{} to {}", small_host, large_host) : "unlimited", 100 * rise,
               100 * priced);
    std::fflush(stdout);
  }
  fmt::print(
      "\n{} pairs, seed {}: {} rise by more than {} %, {} of them in host memory; the worst by {:.2f} %. "
      "With the price {} rise by more, the worst by {:.2f} %. {} smaller budgets have no plan.\n",
      pairs, seed, rises, 100 * allowed, of_host, 100 * worst, priced_rises, 100 * worst_priced,
      without_plan);
}

}  // namespace
}  // namespace stowage

int main(int argc, char** argv) {
  CLI::App app{"Whether plans of more memory are ever slower."};
  std::uint64_t seed = 101;
  int pairs = 250;
  app.add_option("--seed", seed, "of the draws");
  app.add_option("--pairs", pairs, "of budgets");
  CLI11_PARSE(app, argc, argv);
  try {
    stowage::run(seed, pairs);
  } catch (const stowage::InvalidInput& error) {
    fmt::print(stderr, "budget_pairs: {}\n", error.what());
    return 2;
  }
}
