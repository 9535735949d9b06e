// How long planning takes: a GPT of the width that scripts/train uses, at a fifth of its need, by layers.
#include <benchmark/benchmark.h>

#include "stowage/models.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

Graph gpt_graph(std::int64_t layers) {
  GraphBuilder builder;
  const Gpt model = gpt(builder, {.layers = layers});
  return builder.finish(model.loss, AdamW{});
}

void make_plan_at_a_fifth(benchmark::State& state) {
  const Graph graph = gpt_graph(state.range(0));
  const Machine machine;
  const Budget budget{.device = need_bytes(graph, machine) / 5};
  for (auto _ : state) benchmark::DoNotOptimize(make_plan(graph, machine, budget));
  state.counters["ops"] = static_cast<double>(graph.ops.size());
}
BENCHMARK(make_plan_at_a_fifth)->Arg(6)->Arg(12)->Arg(24)->Unit(benchmark::kMillisecond);

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
