#include "bench/gpu_check/run_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "bench/gpu_check/copy_replay.h"
#include "src/base/laps.h"
#include "src/graph/cost.h"
#include "stowage/choose_device.h"
#include "stowage/cuda_device.h"
#include "stowage/engine.h"
#include "stowage/error.h"
#include "stowage/plan.h"
#include "tools/calibrate/own_profile.h"

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
          {"type", to_string(shape.type)}};
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

// A card is opened before planning, which must know what the card's context and libraries take.
struct Place {
  BackendChoice choice;
  Machine machine;
  std::unique_ptr<Device> device;
};

// One layer of the model, within the budget.
OpProfile own_profile(const RunOptions& options, Place& place) {
  const Bytes free = place.device->memory_info().free;
  const Bytes overhead = std::min(options.device_memory, place.machine.overhead_bytes);
  const Bytes most =
      options.device_memory == unlimited ? free : std::min(free, options.device_memory - overhead);
  const auto step_of = [&](std::int64_t samples) {
    Shape shape = options.shape;
    shape.layers = 1;
    shape.batch = samples;
    ShapedModel model = build(shape);
    const auto tokens = static_cast<std::int32_t>(shape.vocabulary);
    return ProbedStep{std::move(model.graph), {{model.tokens.id, 0, tokens}, {model.targets.id, 0, tokens}}};
  };
  return profile_of_step(*place.device, place.machine, most, options.shape.batch, step_of);
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
  place.machine.overhead_bytes =
      overhead_on(*place.device, place.machine.overhead_bytes, most_pinned_bytes(graph, options.host_memory));
  set_seconds(own_profile(options, place), place.machine, graph);
  place.device->reset_counters();  // the run's own begin here
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

// [bytes, seconds] of each transfer of the last step, by direction.
Json transfers_json(const Plan& plan, const std::vector<Interval>& timeline) {
  Json h2d = Json::array(), d2h = Json::array();
  for (std::size_t i = 0; i < std::min(timeline.size(), plan.instructions.size()); ++i) {
    const Instruction& instruction = plan.instructions[i];
    if (instruction.kind != InstructionKind::prefetch && instruction.kind != InstructionKind::offload)
      continue;
    const Bucket& bucket = plan.buckets[plan.lifetimes[instruction.lifetime].bucket];
    const double seconds = timeline[i].end - timeline[i].begin;
    (instruction.kind == InstructionKind::prefetch ? h2d : d2h)
        .push_back(Json::array({bucket.bytes, number(seconds)}));
  }
  return {{"kind", "transfers"}, {"h2d", std::move(h2d)}, {"d2h", std::move(d2h)}};
}

// The last step's work on the compute lane by kernel, as planned and as measured.
Json kernels_json(const Graph& graph, const Plan& plan, const Machine& machine,
                  const std::vector<Interval>& timeline) {
  struct Sum {
    std::uint64_t launches = 0;
    double flops = 0, bytes = 0, planned = 0, seconds = 0;
  };
  std::map<std::string, Sum> sums;
  for (std::size_t i = 0; i < std::min(timeline.size(), plan.instructions.size()); ++i) {
    const Instruction& instruction = plan.instructions[i];
    if (instruction.lane != LaneRole::compute) continue;
    const Op& op = graph.op(instruction.op);
    Sum& sum = sums[op.kernel];
    sum.launches += 1;
    sum.flops += op.cost.flops;
    sum.bytes += op.cost.bytes;
    sum.planned += op_seconds(op, machine);
    sum.seconds += timeline[i].end - timeline[i].begin;
  }
  Json json = {{"kind", "kernels"}};
  for (const auto& [kernel, sum] : sums)
    json["kernels"][kernel] = {{"launches", sum.launches},
                               {"flops", sum.flops},
                               {"bytes", sum.bytes},
                               {"planned_seconds", number(sum.planned)},
                               {"seconds", number(sum.seconds)}};
  return json;
}

std::string name_of(const Graph& graph, const Plan& plan, const Instruction& instruction) {
  if (instruction.op != no_id) return graph.op(instruction.op).name;
  if (instruction.lifetime == no_id) return "";
  return plan.buckets[plan.lifetimes[instruction.lifetime].bucket].name;
}

// How the plan's speculated updates ended in the step.
Clipping clipping_of(const StepReport& report) {
  if (report.clip_scale >= 1) return Clipping::none;
  return report.speculated_updates > 0 ? Clipping::unexpected : Clipping::expected;
}

// A line for each instruction: when it was planned and when the last step ran it, in microseconds from the
// gate before.
void write_timeline(const std::string& path, const Graph& graph, const Plan& plan,
                    const std::vector<Interval>& planned, const std::vector<Interval>& timeline) {
  std::ofstream file(path);
  file << "lane,kind,name,planned_begin,planned_end,begin,end\n";
  for (std::size_t i = 0; i < std::min(timeline.size(), plan.instructions.size()); ++i) {
    const Instruction& instruction = plan.instructions[i];
    file << fmt::format("{},{},{},{:.1f},{:.1f},{:.1f},{:.1f}\n", to_string(instruction.lane),
                        to_string(instruction.kind), name_of(graph, plan, instruction),
                        1e6 * planned[i].begin, 1e6 * planned[i].end, 1e6 * timeline[i].begin,
                        1e6 * timeline[i].end);
  }
  if (!file.flush()) throw InvalidInput(fmt::format("--timeline: cannot write '{}'", path));
}

// Of the last step: how long each lane worked, and how long the compute lane waited for which other.
Json lanes_json(const Plan& plan, const std::vector<Interval>& timeline) {
  std::map<std::string, double> busy, waited;
  double before = 0, last = 0;
  for (std::size_t i = 0; i < std::min(timeline.size(), plan.instructions.size()); ++i) {
    const Instruction& instruction = plan.instructions[i];
    busy[std::string(to_string(instruction.lane))] += timeline[i].end - timeline[i].begin;
    last = std::max(last, timeline[i].end);
    if (instruction.lane != LaneRole::compute) continue;
    double ready = before;
    std::string_view who = i > plan.gate ? "the gate" : "nobody, or the step before";
    for (const Wait& wait : instruction.waits) {
      if (wait.steps_back > 0 || timeline[wait.instruction].end <= ready) continue;
      ready = timeline[wait.instruction].end;
      who = to_string(plan.instructions[wait.instruction].lane);
    }
    waited[std::string(who)] += std::max(0.0, timeline[i].begin - before);
    before = timeline[i].end;
  }
  Json json = {{"kind", "lanes"}, {"last_end", number(last)}};
  for (const auto& [lane, seconds] : busy) json["busy_seconds"][lane] = number(seconds);
  for (const auto& [lane, seconds] : waited) json["compute_waited_seconds"][lane] = number(seconds);
  return json;
}

// How attention was computed since the process began; the same three counts in a simulated run are 0.
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

// The wall seconds of both phases.
Json make_steps(const RunOptions& options, const ShapedModel& model, const Plan& plan, Place& place,
                const Print& print) {
  EngineOptions engine_options;
  engine_options.seed = options.seed;
  engine_options.machine = place.machine;
  engine_options.measurement = Measurement::timeline;
  Laps laps;
  Engine engine(*place.device, model.graph, plan, engine_options);
  const double start_seconds = laps.lap();
  ShapedBatch batch;
  StepReport report;
  for (std::uint64_t step = 0; step < options.steps; ++step) {
    fill(options.shape, options.seed, step, batch);
    const std::array<InputData, 2> inputs{
        {{model.tokens.id, batch.tokens}, {model.targets.id, batch.targets}}};
    report = engine.step(inputs, {.learning_rate = 1e-4});
    print(step_json(report, *place.device).dump());
  }
  engine.drain();
  const double step_seconds = laps.lap();
  const std::vector<Interval> timeline = engine.last_timeline();
  print(transfers_json(plan, timeline).dump());
  print(kernels_json(model.graph, plan, place.machine, timeline).dump());
  print(lanes_json(plan, timeline).dump());
  if (!options.timeline_file.empty())
    write_timeline(options.timeline_file, model.graph, plan,
                   simulate(model.graph, plan, place.machine, clipping_of(report)).instructions, timeline);
  print(attention_json().dump());
  return {
      {"start", start_seconds}, {"pin", place.device->counters().pinning_seconds}, {"steps", step_seconds}};
}

}  // namespace

int run(const RunOptions& options, const Print& print) {
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
  const Json seconds = make_steps(options, model, plan, place, print);
  if (options.replay_copies) print(copies_json(model.graph, plan, *place.device).dump());
  print(Json{{"kind", "end"}, {"seconds", seconds}}.dump());
  return 0;
}

}  // namespace stowage::bench
