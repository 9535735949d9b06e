// A small GPT whose plans speculate, and inputs that decide which of its steps are clipped.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/offload/engine/training_run.h"

namespace stowage::testing {

// The gradient norm is above this in spikes alone.
inline constexpr double spike_clip = 3.4;

// Two layers. A step reads few rows of the embedding, which has more elements than a tile of an undo record
// and no multiple of it.
ModelConfig speculating_config();
Graph speculating_gpt(double clip = spike_clip, Moments moments = Moments::f32,
                      DataType type = DataType::f32);

// The learning rate, with a spike of its own beside those of the gradient.
double speculating_rate(std::uint64_t step);

// Its host is so slow that an update before the gate saves most of its time.
Machine slow_host();

// The first plan that speculates, of those with a part of the range from the least device memory to all that
// is needed, upwards in tenths. The test fails if there is none.
Plan speculating_plan(const Graph& graph, double part_of_range, Bytes bucket_bytes = 0);

// The plan of least memory in which every update that can be taken back begins before the gate, whether that
// saves time or not.
Plan plan_with_early_updates(const Graph& graph, Bytes bucket_bytes = 0);

// By step: whether its gradient is a spike.
using Spikes = std::function<bool(std::uint64_t)>;
bool half_of_steps(std::uint64_t step);  // among them some in a row

// In a spike one target alone counts, so that no mean over targets dampens the gradient.
class SpikeInputs {
 public:
  SpikeInputs(const Graph& graph, Spikes spikes);
  std::span<const InputData> of(std::uint64_t step);
  bool is_spike(std::uint64_t step) const { return spikes_(step); }

 private:
  const Graph& graph_;
  Spikes spikes_;
  std::vector<std::vector<std::int32_t>> values_;
  std::vector<InputData> data_;
};

TrainingRun evaluate(const Graph& graph, SpikeInputs inputs, std::uint64_t steps);

struct SpeculatingRun {
  TrainingRun run;
  std::vector<double> clip_scales;  // by step
  std::vector<std::uint64_t> speculated_updates;
};
// Steps up to `steps` from where the engine is.
SpeculatingRun train(Engine& engine, const Graph& graph, SpikeInputs inputs, std::uint64_t steps,
                     std::optional<bool> speculate);

std::uint64_t speculations_of(const Plan& plan);

}  // namespace stowage::testing
