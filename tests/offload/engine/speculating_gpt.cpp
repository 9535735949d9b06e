#include "tests/offload/engine/speculating_gpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"
#include "stowage/models.h"
#include "tests/support/quick_plan.h"

namespace stowage::testing {
namespace {

constexpr std::int32_t vocabulary = 300;

std::uint64_t hash(std::uint64_t of) {
  of = (of + 1) * 0x9e3779b97f4a7c15U;
  of = (of ^ (of >> 30)) * 0xbf58476d1ce4e5b9U;
  return of ^ (of >> 27);
}

bool is_last_value(const Tensor& tensor) {
  return tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state;
}

std::uint64_t bits_of(const std::vector<std::byte>& value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, value.data(), sizeof bits);
  return bits;
}

}  // namespace

double speculating_rate(std::uint64_t step) { return step % 16 == 9 ? 4e-3 : 5e-4; }

ModelConfig speculating_config() {
  return {.layers = 2,
          .width = 16,
          .heads = 2,
          .vocabulary = vocabulary,
          .sequence = 8,
          .batch = 2,
          .dropout = 0.1};
}

Graph speculating_gpt(double clip, Moments moments, DataType type) {
  GraphBuilder builder(type);
  const BuiltModel model = gpt(builder, speculating_config());
  AdamW optimizer;
  optimizer.clip = clip;
  optimizer.moments = moments;
  return builder.finish(model.loss, optimizer);
}

Machine slow_host() {
  Machine machine;
  machine.host_bytes_per_second = 1e8;
  return machine;
}

Plan speculating_plan(const Graph& graph, double part_of_range, Bytes bucket_bytes) {
  const Machine machine = slow_host();
  const PlanOptions options{.bucket_bytes = bucket_bytes};
  Planner planner = quick_planner(graph, machine, options);
  const Bytes least = planner.minimum_bytes();
  const Bytes need = std::max(least, planner.need_bytes());
  for (double part = part_of_range; part < 1; part += 0.1) {
    const Bytes budget = least + static_cast<Bytes>(part * static_cast<double>(need - least));
    Plan plan = std::get<Plan>(planner.answer({.device = budget}).outcome);
    if (speculations_of(plan) == 0)
      plan = std::get<Plan>(make_plan(graph, machine, {.device = budget}, options));
    if (speculations_of(plan) > 0 && plan.undo_bytes > 0) return plan;
  }
  ADD_FAILURE() << "no plan makes updates before the gate";
  return {};
}

Plan plan_with_early_updates(const Graph& graph, Bytes bucket_bytes) {
  const Machine machine = slow_host();
  const Problem problem =
      make_problem(graph, machine, {.target_bytes = bucket_bytes}, MicroBatchOrder::layer_major);
  Choices choices = lowest_choices(problem);
  choices.speculated.resize(problem.layout.buckets.size(), 0);
  for (const BucketId id : problem.layout.parameters) choices.speculated[id] = problem.undo_bytes[id] > 0;
  Plan plan = complete(problem, Sketcher(problem, choices).serial().draft);
  EXPECT_GT(speculations_of(plan), 0U);
  return plan;
}

bool half_of_steps(std::uint64_t step) {
  const bool in_a_row = step % 64 < 2 * Engine::clipped_in_a_row;
  return in_a_row || hash(step) % 2 == 0;
}

SpikeInputs::SpikeInputs(const Graph& graph, Spikes spikes) : graph_(graph), spikes_(std::move(spikes)) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (graph.kind_of(id) == TensorKind::input) data_.push_back({id, {}});
  values_.resize(data_.size());
}

std::span<const InputData> SpikeInputs::of(std::uint64_t step) {
  for (std::size_t input = 0; input < data_.size(); ++input) {
    const Tensor& tensor = graph_.tensor(data_[input].tensor);
    std::vector<std::int32_t>& values = values_[input];
    values.resize(static_cast<std::size_t>(tensor.elements()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>(hash((step << 16) + (input << 12) + i) % vocabulary);
    if (tensor.name == "targets" && spikes_(step)) std::fill(values.begin() + 1, values.end(), -1);
    data_[input].values = values;
  }
  return data_;
}

TrainingRun evaluate(const Graph& graph, SpikeInputs inputs, std::uint64_t steps) {
  Evaluator evaluator(graph, cpu_launch_table(), run_seed);
  TrainingRun run;
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (const InputData& input : inputs.of(step))
      std::memcpy(evaluator.value(input.tensor).data(), input.values.data(), input.values.size_bytes());
    evaluator.run(step, speculating_rate(step));
    run.losses.push_back(bits_of(evaluator.value(graph.loss)));
    run.norms.push_back(bits_of(evaluator.value(graph.clip)));
  }
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    run.values.push_back(is_last_value(graph.tensor(id)) ? evaluator.value(id) : std::vector<std::byte>{});
  return run;
}

SpeculatingRun train(Engine& engine, const Graph& graph, SpikeInputs inputs, std::uint64_t steps,
                     std::optional<bool> speculate) {
  SpeculatingRun result;
  while (engine.completed_steps() < steps) {
    const std::uint64_t step = engine.completed_steps();
    const StepReport report = engine.step(inputs.of(step), {speculating_rate(step), speculate});
    result.run.losses.push_back(std::bit_cast<std::uint64_t>(report.loss));
    result.run.norms.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    result.clip_scales.push_back(report.clip_scale);
    result.speculated_updates.push_back(report.speculated_updates);
  }
  result.run.values = read_values(engine, graph);
  return result;
}

std::uint64_t speculations_of(const Plan& plan) {
  return static_cast<std::uint64_t>(
      std::count_if(plan.instructions.begin(), plan.instructions.end(),
                    [](const Instruction& each) { return each.kind == InstructionKind::speculate; }));
}

}  // namespace stowage::testing
