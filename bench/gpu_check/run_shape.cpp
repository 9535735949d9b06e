#include "bench/gpu_check/run_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "bench/gpu_check/copy_replay.h"
#include "bench/gpu_check/step_profile.h"
#include "src/base/laps.h"
#include "src/base/output_file.h"
#include "src/base/parallel_for.h"
#include "stowage/choose_device.h"
#include "stowage/cuda_device.h"
#include "stowage/engine.h"
#include "stowage/error.h"
#include "stowage/plan.h"
#include "tools/calibrate/host_probe.h"
#include "tools/calibrate/step_probe.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage::bench {
namespace {

using Json = nlohmann::ordered_json;
using Print = std::function<void(const std::string& line)>;

std::string bits_of(double value) { return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value)); }

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json limit_json(Bytes bytes) { return bytes == unlimited ? Json("unlimited") : Json(bytes); }

Json shape_json(const Shape& shape) {
  return {{"model", shape.model},
          {"layers", shape.layers},
          {"width", shape.width},
          {"heads", shape.heads},
          {"vocabulary", shape.vocabulary},
          {"sequence", shape.sequence},
          {"batch", shape.batch},
          {"head_tokens", shape.head_tokens ? Json(*shape.head_tokens) : Json("auto")},
          {"type", to_string(shape.type)},
          {"moments", to_string(shape.moments)}};
}

std::uint64_t parameters_of(const Graph& graph) {
  std::uint64_t count = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter) count += static_cast<std::uint64_t>(tensor.elements());
  }
  return count;
}

Json plan_json(const Plan& plan) {
  return {{"policy", plan.policy},
          {"device_peak_bytes", plan.device_peak_bytes},
          {"host_bytes", plan.host_bytes},
          {"pinned_bytes", plan.pinned_bytes},
          {"h2d_bytes", plan.h2d_bytes},
          {"d2h_bytes", plan.d2h_bytes},
          {"bucket_bytes", plan.bucket_bytes},
          {"predicted_step_seconds", number(plan.predicted_step_seconds)},
          {"predicted_stall_seconds", number(plan.predicted_stall_seconds)},
          {"clipped_seconds", number(plan.clipped_seconds)},
          {"lower_bound_seconds", number(plan.lower_bound_seconds)},
          {"bound_by", plan.bound_by}};
}

// The device of a run. A card is opened before planning, because the planner must know how much memory the
// card's context and libraries take.
struct Place {
  BackendChoice choice;
  Machine machine;
  std::unique_ptr<Device> device;
};

// Returns the op times of one layer of the model, measured on the device within the budget.
OpProfile own_profile(const RunOptions& options, Place& place) {
  const Bytes arena = arena_within(*place.device, options.device_memory, place.machine.overhead_bytes);
  const auto step_of = [&](std::int64_t samples) {
    Shape shape = options.shape;
    shape.layers = 1;
    shape.batch = samples;
    ShapedModel model = build(shape);
    const auto tokens = static_cast<std::int32_t>(shape.vocabulary);
    return ProbedStep{std::move(model.graph), {{model.tokens, tokens}, {model.targets, tokens}}};
  };
  return profile_of_step(*place.device, place.machine, {.device = arena, .host = options.host_memory},
                         options.shape.batch, step_of);
}

Place prepare(const RunOptions& options, Graph& graph) {
  Place place;
  place.choice = choose_device(options.device);
  if (!options.machine_file.empty()) {
    const MachineFile file = read_machine_file(options.machine_file);
    place.machine = machine_for(file, options.shape.type);
    if (place.choice.backend != DeviceBackend::cuda)
      set_op_seconds(file, options.shape.type, place.machine, graph);
  }
  if (place.choice.backend != DeviceBackend::cuda) return place;
  place.device = open_cuda_device({.ordinal = place.choice.ordinal});
  leave_threads(1);  // as trainers do
  place.machine.overhead_bytes =
      overhead_on(*place.device, place.machine.overhead_bytes, most_pinned_bytes(graph, options.host_memory));
  set_seconds(own_profile(options, place), place.machine, graph);
  place.device->reset_counters();  // counters of the run begin here
  return place;
}

void open_simulated(const RunOptions& options, Place& place) {
  if (place.device != nullptr) return;
  place.device = open_simulated_device({.capacity = place.machine.arena_in(options.device_memory),
                                        .h2d = options.link,
                                        .d2h = options.link,
                                        .poison = Poison::sampled});
}

Json setup_json(const RunOptions& options, const ShapedModel& model, const Place& place,
                const Answer& answer) {
  return {{"kind", "setup"},
          {"shape", shape_json(options.shape)},
          {"backend", place.choice.backend == DeviceBackend::cuda ? "cuda" : "simulated"},
          {"why", place.choice.reason},
          {"parameters", parameters_of(model.graph)},
          {"tokens_per_step", options.shape.tokens()},
          {"model_flops", model_flops(options.shape)},
          {"overhead_bytes", place.machine.overhead_bytes},
          {"need_bytes", answer.need},
          {"minimum_bytes", answer.minimum},
          {"budget_bytes", limit_json(options.device_memory)},
          {"host_budget_bytes", limit_json(options.host_memory)}};
}

Json step_json(const StepReport& report, const Device& device) {
  const MemoryInfo memory = device.memory_info();
  Json json = {{"kind", "step"},
               {"step", report.step},
               {"loss", number(report.loss)},
               {"loss_bits", bits_of(report.loss)},
               {"grad_norm_bits", bits_of(report.grad_norm)},
               {"seconds", number(report.seconds)},
               {"clipped", report.clip_scale < 1},
               {"speculated_updates", report.speculated_updates},
               {"stall_fraction", number(report.stall_fraction)},
               {"h2d_bytes", report.h2d_bytes},
               {"d2h_bytes", report.d2h_bytes},
               {"device_peak_bytes", report.device_peak_bytes}};
  if (memory.total != unlimited) json["device_used_bytes"] = memory.total - memory.free;
  json["device_overhead_bytes"] = memory.overhead;
  return json;
}

// Says how attention was computed since the process began. The three counts by method are 0 in
// a simulated run.
Json attention_json() {
  const AttentionUse use = attention_use();
  return {{"kind", "attention"},
          {"cudnn", use.cudnn},
          {"own", use.own},
          {"plain", use.plain},
          {"refusals", use.refusals}};
}

Json total_json(const CopyTotal& total) {
  return {{"bytes", total.bytes}, {"copies", total.copies}, {"seconds", number(total.seconds)}};
}

Json copies_json(const Graph& graph, const Plan& plan, Device& device) {
  Json json = {{"kind", "copies"}};
  for (const LaneRole role : {LaneRole::h2d, LaneRole::d2h}) {
    const CopyReplay replay = replay_copies(device, graph, plan, role);
    json[std::string(to_string(role))] = {{"bucketed", total_json(replay.bucketed)},
                                          {"per_tensor", total_json(replay.per_tensor)}};
  }
  return json;
}

StepReport make_step(Engine& engine, const RunOptions& options, const ShapedModel& model,
                     std::uint64_t step) {
  ShapedBatch batch;
  fill(options.shape, options.seed, step, batch);
  const std::array<InputData, 2> inputs{{{model.tokens.id, batch.tokens}, {model.targets.id, batch.targets}}};
  return engine.step(inputs, {.learning_rate = 1e-4});
}

// Repeats the first steps and records when each instruction runs. Recording takes time, so it needs steps of
// its own.
void profile_steps(const RunOptions& options, const ShapedModel& model, const Plan& plan, Place& place,
                   const Print& print, OutputFile& file) {
  Engine engine(*place.device, model.graph, plan,
                {.seed = options.seed,
                 .measurement = Measurement::timeline,
                 .machine = place.machine,
                 .kernels = {},
                 .host_kernels = {}});
  StepReport report;
  for (std::uint64_t step = 0; step < options.profile_steps; ++step)
    report = make_step(engine, options, model, step);
  engine.drain();
  const LaunchTable kernels = launch_table_for(*place.device);
  const StepProfile profile{model.graph, plan, place.machine, report, engine.last_timeline(), kernels};
  print(kernels_json(profile).dump());
  print(lanes_json(profile).dump());
  if (file.wanted()) file.write(timeline_csv(profile));
  file.commit();
}

// Makes the engine and runs the steps. Returns the wall seconds of both.
Json make_steps(const RunOptions& options, const ShapedModel& model, const Plan& plan, Place& place,
                const Print& print) {
  EngineOptions engine_options;
  engine_options.seed = options.seed;
  engine_options.machine = place.machine;
  Laps laps;
  Engine engine(*place.device, model.graph, plan, engine_options);
  const double start_seconds = laps.lap();
  for (std::uint64_t step = 0; step < options.steps; ++step)
    print(step_json(make_step(engine, options, model, step), *place.device).dump());
  engine.drain();
  const double step_seconds = laps.lap();
  print(attention_json().dump());
  return {
      {"start", start_seconds}, {"pin", place.device->counters().pinning_seconds}, {"steps", step_seconds}};
}

// Returns the bytes per second that AdamW moves in host memory, by the median of five updates after a first
// one that does not count. Uses as many threads as the steps' updates.
double host_rate(std::int64_t elements) {
  constexpr int repetitions = 5;
  HostUpdate update(elements);
  update.seconds();
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) times.push_back(update.seconds());
  return update.bytes() / median(std::move(times));
}

}  // namespace

int run(const RunOptions& options, const Print& print) {
  if (!options.timeline_file.empty() && options.profile_steps == 0)
    throw InvalidInput("--timeline: no step has one; ask for some by --profile-steps");
  OutputFile timeline("--timeline", options.timeline_file, Writing::whole);
  ShapedModel model = build(options.shape);
  Laps laps;
  Place place = prepare(options, model.graph);
  const double open_seconds = laps.lap();
  const Answer answer = Planner(model.graph, place.machine, options.plan)
                            .answer({.device = options.device_memory, .host = options.host_memory});
  Json setup = setup_json(options, model, place, answer);
  setup["seconds"] = {{"open", open_seconds}, {"plan", laps.lap()}};
  if (const auto* none = std::get_if<Infeasible>(&answer.outcome)) {
    setup["kind"] = "infeasible";
    setup["smallest_budget_bytes"] = none->minimum;
    setup["op"] = none->op;
    setup["host"] = none->host;
    print(setup.dump());
    return 3;
  }
  const Plan& plan = std::get<Plan>(answer.outcome);
  setup["plan"] = plan_json(plan);
  print(setup.dump());
  if (options.plan_only) return 0;
  open_simulated(options, place);
  Json end = {{"kind", "end"}};
  const auto time_host = [&] {
    if (options.host_elements > 0) end["host_bytes_per_second"].push_back(host_rate(options.host_elements));
  };
  time_host();
  end["seconds"] = make_steps(options, model, plan, place, print);
  time_host();
  if (options.profile_steps > 0) profile_steps(options, model, plan, place, print, timeline);
  if (options.replay_copies) print(copies_json(model.graph, plan, *place.device).dump());
  print(end.dump());
  return 0;
}

}  // namespace stowage::bench
