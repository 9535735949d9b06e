#include "tests/offload/engine/training_run.h"

#include <bit>
#include <cstring>

#include "stowage/models.h"

namespace stowage::testing {
namespace {

bool lives_across_steps(const Tensor& tensor) {
  return tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state;
}

std::uint64_t bits_of(const std::vector<std::byte>& value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, value.data(), sizeof bits);
  return bits;
}

}  // namespace

StepInputs::StepInputs(const Graph& graph, std::int32_t range) : range_(range) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).kind != TensorKind::input) continue;
    values_.emplace_back(graph.tensor(id).bytes() / sizeof(std::int32_t));
    data_.push_back({id, {}});
  }
  for (std::size_t i = 0; i < data_.size(); ++i) data_[i].values = values_[i];
}

std::span<const InputData> StepInputs::of(std::uint64_t step) {
  std::uint64_t state = step * 0x9e3779b97f4a7c15U + 1;
  for (auto& values : values_)
    for (std::int32_t& value : values) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      value = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(range_));
    }
  return data_;
}

double learning_rate(std::uint64_t step) { return 1e-2 / static_cast<double>(1 + step); }

TrainingRun run_evaluator(const Graph& graph, const LaunchTable& table, std::uint64_t steps,
                          std::int32_t range) {
  Evaluator evaluator(graph, table, run_seed);
  StepInputs inputs(graph, range);
  TrainingRun run;
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (const InputData& input : inputs.of(step))
      std::memcpy(evaluator.value(input.tensor).data(), input.values.data(), input.values.size_bytes());
    evaluator.run(step, learning_rate(step));
    run.losses.push_back(bits_of(evaluator.value(graph.loss)));
    run.norms.push_back(bits_of(evaluator.value(graph.clip)));
  }
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    run.values.push_back(lives_across_steps(graph.tensor(id)) ? evaluator.value(id)
                                                              : std::vector<std::byte>{});
  return run;
}

StepReport make_step(Engine& engine, StepInputs& inputs) {
  const std::uint64_t step = engine.completed_steps();
  return engine.step(inputs.of(step), {learning_rate(step)});
}

TrainingRun run_engine(Engine& engine, const Graph& graph, std::uint64_t steps, std::int32_t range) {
  StepInputs inputs(graph, range);
  TrainingRun run;
  while (engine.completed_steps() < steps) {
    const StepReport report = make_step(engine, inputs);
    run.losses.push_back(std::bit_cast<std::uint64_t>(report.loss));
    run.norms.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
  }
  run.values = read_values(engine, graph);
  return run;
}

std::vector<std::vector<std::byte>> read_values(Engine& engine, const Graph& graph) {
  std::vector<std::vector<std::byte>> values(graph.tensors.size());
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (lives_across_steps(graph.tensor(id))) values[id] = engine.read(id);
  return values;
}

Graph smallest_gpt(std::int64_t layers) {
  GraphBuilder builder;
  const BuiltModel model =
      gpt(builder, {.layers = layers, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4, .batch = 1});
  return builder.finish(model.loss, AdamW{});
}

}  // namespace stowage::testing
