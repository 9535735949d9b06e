#include "samples/run/calibrate_quick.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "src/models/require_valid.h"
#include "stowage/graph_builder.h"
#include "stowage/launch_table.h"
#include "stowage/simulated_device.h"
#include "tools/calibrate/codec_probe.h"
#include "tools/calibrate/host_probe.h"
#include "tools/calibrate/step_probe.h"

namespace stowage::samples {
namespace {

constexpr double time_limit = 0.5;       // seconds of steps alone; a started step is finished
constexpr int least_rounds = 4;          // least rounds, however long they take
constexpr Bytes bytes_of_element = 16;   // bytes of one element of the measured host update: four f32
constexpr Bytes for_libraries = 32_MiB;  // kernels that libraries compile, and stacks of threads

// Makes the model at most `widest` wide, with whole groups of heads.
void shrink(ModelConfig& model, std::int64_t widest) {
  const std::int64_t group = model.heads / heads_of_keys(model);
  const std::int64_t per_head = std::min(width_of_head(model), widest);
  const std::int64_t groups = std::max<std::int64_t>(widest / (per_head * group), 1);
  const std::int64_t width = model.width;
  if (model.key_heads > 0) {
    model.key_heads = std::min(model.key_heads, groups);
    model.heads = model.key_heads * group;
    model.width = std::min(model.width, widest);
  } else {
    model.heads = std::min(model.heads, groups);
    model.width = per_head * model.heads;
  }
  if (model.head_width > 0) model.head_width = per_head;
  if (model.inner > 0) model.inner = std::max<std::int64_t>(model.inner * model.width / width, 1);
}

// Returns `share` of as much of the model as runs in some hundred milliseconds: the whole batch before more
// layers, so that caches hit and miss as with the whole model.
ModelConfig probe(const ModelConfig& model, double share) {
  const auto widest = static_cast<std::int64_t>(32 * std::sqrt(share)) * 32;
  const double most_parameters = 16e6 * share, flops_per_round = 3e10 * share;
  ModelConfig result = model;
  shrink(result, widest);
  result.sequence = std::min(model.sequence, std::int64_t{512});
  const double parameters = 12.0 * static_cast<double>(result.width) * static_cast<double>(result.width);
  const double sample_flops = 6 * parameters * static_cast<double>(result.sequence);
  const auto within = [](double most, std::int64_t limit) {
    return std::clamp(static_cast<std::int64_t>(std::min(most, 1e6)), std::int64_t{1}, limit);
  };
  result.batch = within(flops_per_round / sample_flops, model.batch / model.micro_batches);
  const double layer_flops = sample_flops * static_cast<double>(result.batch);
  result.layers = within(std::min(flops_per_round / layer_flops, most_parameters / parameters), model.layers);
  if (!result.windows.empty()) result.windows.resize(static_cast<std::size_t>(result.layers));
  // Two, since the second one adds to gradients.
  result.micro_batches = std::min<std::int64_t>(model.micro_batches, 2);
  result.gradient_groups = result.ranks = 1;
  result.rank = 0;
  result.batch *= result.micro_batches;
  if (share < 1) {
    result.vocabulary = std::min(
        model.vocabulary, 256 + static_cast<std::int64_t>(share * static_cast<double>(model.vocabulary)));
    result.padded_vocabulary = 0;
  }
  return result;
}

// The model's step and the host update to measure, sized for the host's room.
struct Probe {
  ProbedStep step;
  std::int64_t elements = share_elements;  // elements of the update on the host
};

Probe probe_within(std::span<const HostLimit> limits, const ModelFamily& family, const ModelConfig& model,
                   DataType type, const AdamW& optimizer) {
  constexpr double least_share = 1.0 / 64;
  const HostLimit* const limit = tightest(limits);
  for (double share = 1;; share /= 2) {
    GraphBuilder builder(type);
    const BuiltModel built = family.build(builder, probe(model, share));
    Probe result{{builder.finish(built.loss, optimizer), built.inputs},
                 static_cast<std::int64_t>(share * static_cast<double>(share_elements))};
    if (limit == nullptr) return result;
    const Bytes need = bytes_of_step(result.step.graph) +
                       bytes_of_element * static_cast<Bytes>(result.elements) + for_libraries;
    if (need <= limit->room) return result;
    if (share <= least_share) require_room_to_measure(need, limits, or_measured);
  }
}

// Measures the codec with an array of less memory than a host update of `elements`.
void set_codec_rates(Device& device, DataType type, std::int64_t elements, Machine& machine) {
  const CodecProbeOptions options{.elements = std::min(elements, std::int64_t{1} << 20U), .repetitions = 3};
  const LaunchTable kernels = cpu_launch_table();
  const Lane lane(device, LaneRole::compute);
  const OpProbeContext context{device, kernels, lane.id(), machine};
  for (const CodecRate& rate : measure_codec(context, options, type, machine.launch_seconds))
    (rate.bits == CodeBits::four ? machine.codec_4_bits : machine.codec_8_bits) = rate.rates;
}

}  // namespace

OpProfile profile_on_card(Device& card, const Machine& machine, const ModelFamily& family,
                          const ModelConfig& model, DataType type, const AdamW& optimizer,
                          const Budget& budget) {
  ModelConfig one = model;
  one.layers = 1;
  if (!one.windows.empty()) one.windows.resize(1);
  one.micro_batches = std::min<std::int64_t>(model.micro_batches, 2);
  one.gradient_groups = one.ranks = 1;
  one.rank = 0;
  const auto step_of = [&](std::int64_t samples) {
    one.batch = samples * one.micro_batches;
    GraphBuilder builder(type);
    const BuiltModel built = family.build(builder, one);
    return ProbedStep{builder.finish(built.loss, optimizer), built.inputs};
  };
  return profile_of_step(card, machine, budget, model.batch / model.micro_batches, step_of);
}

Calibration calibrate_quick(const ModelFamily& family, const ModelConfig& model, DataType type,
                            const AdamW& optimizer, const Link& link, std::span<const HostLimit> limits) {
  Probe probe = probe_within(limits, family, model, type, optimizer);
  const auto device = open_simulated_device({.capacity = unlimited, .poison = Poison::sampled});
  StepProbe run(*device, std::move(probe.step.graph), probe.step.inputs);
  run.step();  // first step: libraries compile their kernels, pages are touched
  const StepProbe::Step alone = run.steps(least_rounds, for_seconds(time_limit));
  Calibration result;
  Machine& machine = result.machine;
  machine.h2d = machine.d2h = link;
  std::vector<OpTime> times;
  const Graph& graph = run.graph();
  add_ops(graph, alone, result.profile);
  for (OpId id = 0; id < graph.ops.size(); ++id) add_time(graph.op(id), alone.ops[id], times);
  result.fitted = fit_rates(times, machine);
  machine.host_bytes_per_second =
      measure_host({.elements = probe.elements, .repetitions = 5}).back().bytes_per_second;
  set_codec_rates(*device, type, probe.elements, machine);
  measure_shares(run, alone.whole, link, machine, probe.elements);
  return result;
}

}  // namespace stowage::samples
