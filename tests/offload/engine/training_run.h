// The same training, run by the Evaluator and by an Engine, to be compared bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stowage/engine.h"
#include "stowage/evaluate.h"

namespace stowage::testing {

// Everything that a training run leaves behind. Equality is that of bits: a NaN equals itself.
struct TrainingRun {
  std::vector<std::uint64_t> losses;  // bits, by step
  std::vector<std::uint64_t> norms;
  std::vector<std::vector<std::byte>> values;  // parameters and optimizer state, by tensor; else empty
  friend bool operator==(const TrainingRun&, const TrainingRun&) = default;
};

// The inputs of step `step`: values in [0, range), different for every step and element.
class StepInputs {
 public:
  StepInputs(const Graph& graph, std::int32_t range);
  std::span<const InputData> of(std::uint64_t step);

 private:
  std::vector<std::vector<std::int32_t>> values_;
  std::vector<InputData> data_;
  std::int32_t range_;
};

inline constexpr std::uint64_t run_seed = 7;
double learning_rate(std::uint64_t step);

TrainingRun run_evaluator(const Graph& graph, const LaunchTable& table, std::uint64_t steps,
                          std::int32_t range);

// Steps up to `steps` from where the engine is; losses and norms are those of these steps.
TrainingRun run_engine(Engine& engine, const Graph& graph, std::uint64_t steps, std::int32_t range);
std::vector<std::vector<std::byte>> read_values(Engine& engine, const Graph& graph);
StepReport make_step(Engine& engine, StepInputs& inputs);

// As small as it gets; inputs range over 16 values.
Graph smallest_gpt(std::int64_t layers);

}  // namespace stowage::testing
