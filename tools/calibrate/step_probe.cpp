#include "tools/calibrate/step_probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "src/graph/cost.h"
#include "stowage/error.h"
#include "stowage/planner.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage {
namespace {

Plan plan_within(const Graph& graph, const Budget& budget) {
  auto whole = make_plan(graph, Machine{}, budget, {.policy = Policy::none});
  if (std::holds_alternative<Plan>(whole)) return std::get<Plan>(std::move(whole));
  auto part = make_plan(graph, Machine{}, budget);
  if (std::holds_alternative<Plan>(part)) return std::get<Plan>(std::move(part));
  const auto& none = std::get<Infeasible>(part);
  const Bytes has = none.host ? budget.host : budget.device;
  throw OutOfMemory(fmt::format("a step to measure needs {} bytes of the {}, and may have {}; give more",
                                none.minimum, none.host ? "host" : "device", has),
                    none.minimum, has);
}

OpProfile profile_of(Device& device, ProbedStep step, const Budget& budget) {
  constexpr double step_time = 0.2;  // seconds
  constexpr int least_steps = 4;
  StepProbe run(device, std::move(step.graph), step.inputs,
                {.kernels = {}, .modelled = {}, .budget = budget});
  run.step();  // first step: libraries compile their kernels
  OpProfile profile;
  add_ops(run.graph(), run.steps(least_steps, for_seconds(step_time)), profile);
  return profile;
}

}  // namespace

StepProbe::StepProbe(Device& device, Graph graph, const std::vector<ModelInput>& inputs,
                     const Options& options)
    : graph_(std::move(graph)),
      plan_(plan_within(graph_, options.budget)),
      engine_(device, graph_, plan_,
              {.measurement = Measurement::timeline,
               .pageable_fallback = true,
               .machine = options.modelled,
               .kernels = options.kernels,
               .host_kernels = {}}),
      launches_(graph_.ops.size()) {
  for (const ModelInput& input : inputs) {
    const TensorId id = input.value.id;
    auto& values = values_.emplace_back(static_cast<std::size_t>(graph_.tensor(id).elements()));
    const auto count = static_cast<std::size_t>(std::min(input.values, 256) - input.least);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = input.least + static_cast<std::int32_t>(i % count);
    inputs_.push_back({id, values});
  }
  for (const Instruction& instruction : plan_.instructions) {
    if (instruction.lane == LaneRole::compute) launches_[instruction.op] += 1;
  }
}

StepProbe::Step StepProbe::step() {
  engine_.step(inputs_, {.learning_rate = 0});
  const std::vector<Interval> times = engine_.last_timeline();
  Step result;
  result.ops.resize(graph_.ops.size());
  std::optional<double> before;
  bool behind_gate = false;
  for (InstructionId id = 0; id < times.size(); ++id) {
    const Instruction& instruction = plan_.instructions[id];
    if (instruction.lane == LaneRole::compute) {
      const double took = times[id].end - times[id].begin;
      const double gap = before ? times[id].begin - *before : 0;
      const bool waits = std::exchange(behind_gate, false) || !instruction.waits.empty();
      const double counted = waits ? took : took + gap;
      result.ops[instruction.op] += counted / launches_[instruction.op];
      result.busy += counted;
      result.whole += took + gap;
      before = times[id].end;
    }
    if (id == plan_.gate) behind_gate = true;
  }
  return result;
}

StepProbe::Step StepProbe::steps(int least, const std::function<bool()>& more) {
  std::vector<std::vector<double>> by_op(graph_.ops.size());
  std::vector<double> busy, whole;
  for (int made = 0; made < least || more(); ++made) {
    const Step one = step();
    for (std::size_t i = 0; i < one.ops.size(); ++i) by_op[i].push_back(one.ops[i]);
    busy.push_back(one.busy);
    whole.push_back(one.whole);
  }
  Step result;
  result.busy = median(std::move(busy));
  result.whole = median(std::move(whole));
  double made_up = 0;
  for (OpId id = 0; id < by_op.size(); ++id) {
    result.ops.push_back(median(std::move(by_op[id])));
    made_up += result.ops.back() * launches_[id];
  }
  for (double& seconds : result.ops) seconds *= result.busy / made_up;
  return result;
}

Bytes bytes_of_step(const Graph& graph) {
  const Plan plan = plan_within(graph, {});
  return plan.device_peak_bytes + plan.host_bytes;
}

double seconds_by_rates(const Graph& graph, const Machine& machine) {
  double seconds = 0;
  for (const Op& op : graph.ops) seconds += op_seconds(op, machine);
  return seconds * graph.micro_batches;
}

std::function<bool()> for_seconds(double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  return [end] { return Clock::now() < end; };
}

Bytes arena_within(const Device& device, Bytes budget, Bytes overhead) {
  const MemoryInfo memory = device.memory_info();
  const Bytes to_come = overhead - std::min(overhead, memory.overhead);
  const Bytes free = memory.free - std::min(memory.free, to_come);
  return budget == unlimited ? free : std::min(free, budget - std::min(budget, overhead));
}

void add_ops(const Graph& graph, const StepProbe::Step& step, OpProfile& profile) {
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    if (step.ops[id] > 0) profile.add(graph.op(id).kernel, graph.op(id).cost, step.ops[id]);
  }
}

OpProfile profile_of_step(Device& device, const Machine& machine, const Budget& budget, std::int64_t samples,
                          const std::function<ProbedStep(std::int64_t samples)>& build) {
  constexpr double longest_step = 0.1;  // seconds
  for (; samples > 0; samples /= 2) {
    ProbedStep step = build(samples);
    if (seconds_by_rates(step.graph, machine) > longest_step) continue;
    try {
      return profile_of(device, std::move(step), budget);
    } catch (const OutOfMemory&) {
      continue;  // fewer samples may fit
    }
  }
  return {};
}

}  // namespace stowage
