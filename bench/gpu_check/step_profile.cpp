#include "bench/gpu_check/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "offload/engine/joint.h"
#include "src/graph/cost.h"
#include "stowage/planner.h"

namespace stowage::bench {
namespace {

using Json = nlohmann::ordered_json;

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

}  // namespace

nlohmann::ordered_json kernels_json(const StepProfile& profile) {
  const auto& [graph, plan, machine, report, timeline, kernels] = profile;
  struct Sum {
    std::uint64_t ops = 0, launches = 0;
    double flops = 0, bytes = 0, planned = 0, seconds = 0;
  };
  std::map<std::string, Sum> sums;
  for (std::size_t i = 0; i < std::min(timeline.size(), plan.instructions.size()); ++i) {
    const Instruction& instruction = plan.instructions[i];
    if (instruction.lane != LaneRole::compute) continue;
    const Op& op = graph.op(instruction.op);
    Sum& sum = sums[op.kernel];
    sum.ops += 1;
    sum.launches += 1;
    sum.flops += op.cost.flops;
    sum.bytes += op.cost.bytes;
    sum.planned += op_seconds(op, machine);
    sum.seconds += timeline[i].end - timeline[i].begin;
  }
  for (const std::vector<InstructionId>& joint : joint_updates(graph, plan, kernels))
    if (joint.back() < timeline.size())
      sums[graph.op(plan.instructions[joint.front()].op).kernel].launches -= joint.size() - 1;
  Json json = {{"kind", "kernels"}};
  for (const auto& [kernel, sum] : sums)
    json["kernels"][kernel] = {
        {"ops", sum.ops},     {"launches", sum.launches},       {"flops", sum.flops},
        {"bytes", sum.bytes}, {"planned_seconds", sum.planned}, {"seconds", sum.seconds}};
  return json;
}

std::string timeline_csv(const StepProfile& profile) {
  const auto& [graph, plan, machine, report, timeline, kernels] = profile;
  const std::vector<Interval> planned = simulate(graph, plan, machine, clipping_of(report)).instructions;
  std::string text = "lane,kind,name,planned_begin,planned_end,begin,end\n";
  for (std::size_t i = 0; i < std::min(timeline.size(), plan.instructions.size()); ++i) {
    const Instruction& instruction = plan.instructions[i];
    text +=
        fmt::format("{},{},{},{:.1f},{:.1f},{:.1f},{:.1f}\n", to_string(instruction.lane),
                    to_string(instruction.kind), name_of(graph, plan, instruction), 1e6 * planned[i].begin,
                    1e6 * planned[i].end, 1e6 * timeline[i].begin, 1e6 * timeline[i].end);
  }
  return text;
}

nlohmann::ordered_json lanes_json(const StepProfile& profile) {
  const Plan& plan = profile.plan;
  const std::vector<Interval>& timeline = profile.timeline;
  std::map<std::string, double> busy, waited;
  double before = 0, last = 0;
  for (std::size_t i = 0; i < std::min(timeline.size(), plan.instructions.size()); ++i) {
    const Instruction& instruction = plan.instructions[i];
    busy[std::string(to_string(instruction.lane))] += timeline[i].end - timeline[i].begin;
    last = std::max(last, timeline[i].end);
    if (instruction.lane != LaneRole::compute) continue;
    if (i > plan.gate && before < timeline[plan.gate].end) {  // all behind the gate wait for it
      waited["the gate"] += timeline[plan.gate].end - before;
      before = timeline[plan.gate].end;
    }
    double ready = before;
    std::string_view who = "nobody, or the step before";
    for (const Wait& wait : instruction.waits) {
      if (wait.steps_back > 0 || timeline[wait.instruction].end <= ready) continue;
      ready = timeline[wait.instruction].end;
      who = to_string(plan.instructions[wait.instruction].lane);
    }
    waited[std::string(who)] += std::max(0.0, timeline[i].begin - before);
    before = timeline[i].end;
  }
  Json json = {{"kind", "lanes"}, {"last_end", last}};
  for (const auto& [lane, seconds] : busy) json["busy_seconds"][lane] = seconds;
  for (const auto& [lane, seconds] : waited) json["compute_waited_seconds"][lane] = seconds;
  return json;
}

}  // namespace stowage::bench
