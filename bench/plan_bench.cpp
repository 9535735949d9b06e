// Times planning, for a GPT of the width that scripts/train uses, at a fifth of its need, by number of
// layers. Times the simulation of one plan. Each has a machine whose lanes do not slow each other, and one
// whose lanes do.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "stowage/models.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

Graph gpt_graph(std::int64_t layers) {
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, {.layers = layers});
  return builder.finish(model.loss, AdamW{});
}

Machine sharing_machine() {
  Machine machine;
  machine.h2d_both_bytes_per_second = machine.d2h_both_bytes_per_second = 14e9;
  machine.host_total_bytes_per_second = 30e9;
  return machine;
}

void make_plan_at_a_fifth(benchmark::State& state, const Machine& machine) {
  const Graph graph = gpt_graph(state.range(0));
  const Budget budget{.device = need_bytes(graph, machine) / 5};
  for (auto _ : state) benchmark::DoNotOptimize(make_plan(graph, machine, budget));
  state.counters["ops"] = static_cast<double>(graph.ops.size());
}
BENCHMARK_CAPTURE(make_plan_at_a_fifth, alone, Machine{})
    ->Arg(6)
    ->Arg(12)
    ->Arg(24)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(make_plan_at_a_fifth, sharing, sharing_machine())
    ->Arg(6)
    ->Arg(24)
    ->Unit(benchmark::kMillisecond);

void simulate_at_a_tenth(benchmark::State& state, const Machine& machine) {
  const Graph graph = gpt_graph(state.range(0));
  const Budget budget{.device = std::max(need_bytes(graph, machine) / 10, minimum_bytes(graph, machine))};
  const Plan plan = std::get<Plan>(make_plan(graph, Machine{}, budget));
  for (auto _ : state) benchmark::DoNotOptimize(simulate(graph, plan, machine));
  state.counters["instructions"] = static_cast<double>(plan.instructions.size());
}
BENCHMARK_CAPTURE(simulate_at_a_tenth, alone, Machine{})->Arg(6)->Arg(24)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(simulate_at_a_tenth, sharing, sharing_machine())
    ->Arg(6)
    ->Arg(24)
    ->Unit(benchmark::kMicrosecond);

void need_and_minimum(benchmark::State& state) {
  const Graph graph = gpt_graph(state.range(0));
  const Machine machine;
  for (auto _ : state) {
    benchmark::DoNotOptimize(need_bytes(graph, machine));
    benchmark::DoNotOptimize(minimum_bytes(graph, machine));
  }
}
BENCHMARK(need_and_minimum)->Arg(6)->Arg(24)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stowage
