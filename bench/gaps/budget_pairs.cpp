// Looks for plans that are slower with more memory. The steps are random GPTs, BERTs and chains of layers
// with long skips, on random machines. Each has two budgets: the second has more device memory or, every
// other time on average, more host memory. A planner of its own answers each budget. Prints a line of
// Markdown for each pair whose predicted step rises by more than 1 %, or its time with its price by more than
// 0.2 %. The planner compares plans by time with price (PlannerSettings::transfer_risk), so a plan that takes
// longer may be the better one.
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
#include <vector>

#include "src/machine/chosen_machine.h"
#include "stowage/error.h"
#include "stowage/graph_builder.h"
#include "stowage/machine_file.h"
#include "stowage/nn.h"
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
  // Draws between `least` and `most`, log-uniformly.
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

Graph any_transformer(Draws& draws, DataType type, std::string& name) {
  const std::string shape = fmt::format("{}x{}", draws.one_of({1, 2, 3, 4, 6, 8, 12, 16, 24}),
                                        draws.one_of({64, 128, 256, 512, 768, 1024, 2048}));
  ModelWords words;
  (draws.one_of({0, 1, 2}) > 0 ? words.gpt : words.bert) = shape;
  words.sequence = std::to_string(draws.one_of({64, 128, 256, 512, 1024}));
  const int micro_batches = draws.one_of({1, 1, 1, 2, 3, 4});
  words.micro_batches = std::to_string(micro_batches);
  words.batch = std::to_string(micro_batches * draws.one_of({1, 2, 4, 8}));
  name = fmt::format("{} {}, {} x {} in {}", words.gpt.empty() ? "bert" : "gpt", shape, words.batch,
                     words.sequence, words.micro_batches);
  return build(*model_spec(words, type));
}

// Returns a chain of layers of one product and a gelu, of random widths. Three of ten layers also read the
// result of a layer far before.
Graph any_chain(Draws& draws, DataType type, std::string& name) {
  const int layers = draws.one_of({30, 45, 60, 80, 100, 120}), far = layers / 4;
  const std::int64_t rows = draws.one_of({2048, 4096, 8192, 16384});
  const int narrow = draws.one_of({256, 1024}), wide = draws.one_of({2048, 4096});
  name = fmt::format("{} layers, {} rows of {} to {}", layers, rows, narrow, wide);
  GraphBuilder builder(type);
  struct Layer {
    Value value;
    std::int64_t width = 0;
  };
  const auto product = [&](const std::string& of, const Layer& x, std::int64_t width) {
    return nn::linear(builder, of, x.value, builder.parameter(of + ".weight", {x.width, width}, {}), {});
  };
  builder.begin_unit("first");
  const Value tokens = builder.input("tokens", {rows}), targets = builder.input("targets", {rows});
  const Value table = builder.parameter("table", {512, 256}, {});
  std::vector<Layer> written{{nn::embedding(builder, "embedding", tokens, table, {}, rows), 256}};
  for (int i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("layer{}", i);
    builder.begin_unit(layer);
    const auto width = static_cast<std::int64_t>(
        draws.between(static_cast<Bytes>(narrow), static_cast<Bytes>(wide)) / 16 * 16);
    const Layer before = written.back();
    const Value weight = builder.parameter(layer + ".weight", {before.width, width}, {}),
                bias = builder.parameter(layer + ".bias", {width}, {});
    Value value = nn::linear_gelu(builder, layer, before.value, weight, bias, nn::Gelu::tanh);
    if (i >= far && draws.one_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) <= 3) {
      const auto from = draws.between(1, static_cast<Bytes>(i - far + 1));
      value = nn::add(builder, layer + ".sum", value, product(layer + ".skip", written.at(from), width));
    }
    written.push_back({value, width});
  }
  builder.begin_unit("head");
  return builder.finish(nn::cross_entropy(builder, "loss", product("head", written.back(), 64), targets),
                        AdamW{});
}

Case any_case(Draws& draws) {
  const std::string machine = draws.one_of({"v100-16gb", "rtx4090", "a100-80gb", "h200"});
  const MachineFile file = read_machine(machine, machines_folder());
  const DataType type = usual_type(file);
  Case made;
  made.graph = draws.one_of({1, 2, 3}) == 3 ? any_chain(draws, type, made.name)
                                            : any_transformer(draws, type, made.name);
  made.name += ", " + machine;
  made.machine = machine_for(file, work_type(made.graph));
  set_op_seconds(file, work_type(made.graph), made.machine, made.graph);
  return made;
}

struct Pair {
  Budget small, large;
};
// Returns nullopt if no plan takes fewer host bytes than the fastest.
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

// Seconds of a plan; infinite if there is none.
struct Seconds {
  double step = INFINITY;
  double priced = INFINITY;
};
Seconds seconds(const Case& of, const Budget& budget) {
  const Answer answer = Planner(of.graph, of.machine).answer(budget);
  const auto* const plan = std::get_if<Plan>(&answer.outcome);
  if (plan == nullptr) return {};
  const double step = plan->predicted_step_seconds;
  return {step, step + answer.price.transfers + answer.price.replays};
}

void run(std::uint64_t seed, int pairs) {
  Draws draws(seed);
  constexpr double allowed = 0.01, allowed_priced = 0.002;
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
    const double rise = after.step / before.step - 1, priced = after.priced / before.priced - 1;
    worst = std::max(worst, rise);
    worst_priced = std::max(worst_priced, priced);
    priced_rises += priced > allowed_priced ? 1 : 0;
    if (rise <= allowed && priced <= allowed_priced) continue;
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
      "With the price {} rise by more than {} %, the worst by {:.2f} %. {} smaller budgets have no plan.\n",
      pairs, seed, rises, 100 * allowed, of_host, 100 * worst, priced_rises, 100 * allowed_priced,
      100 * worst_priced, without_plan);
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
