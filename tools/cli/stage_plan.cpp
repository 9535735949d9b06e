#include "tools/cli/stage_plan.h"

#include <algorithm>
#include <vector>

#include "offload/parallel/layer_choice.h"
#include "stowage/planner.h"
#include "tools/report/tally.h"

namespace stowage {
namespace {

// Sets the medians over the micro-batches of their time in a range of the stage.
void set_ways(const Graph& graph, const Plan& plan, const Machine& machine, StagePlan& stage) {
  const Timeline timeline = simulate(graph, plan, machine);
  const std::size_t ranges = graph.range_begins.size() + 1, of_range = 2 * std::size_t{graph.micro_batches};
  std::vector<Interval> in(ranges * of_range, {infinite_seconds, 0});
  for (std::size_t i = 0; i < plan.instructions.size(); ++i) {
    const Instruction& instruction = plan.instructions[i];
    if (instruction.lane != LaneRole::compute || instruction.op == no_id) continue;
    const Op& op = graph.op(instruction.op);
    if (op.phase == Phase::update) continue;
    const bool forward = instruction.kind == InstructionKind::launch && op.phase == Phase::forward;
    Interval& of = in[graph.range_of(op.unit) * of_range + 2 * std::size_t{graph.micro_batch_of(op.unit)} +
                      (forward ? 0 : 1)];
    of.begin = std::min(of.begin, timeline.instructions[i].begin);
    of.end = std::max(of.end, timeline.instructions[i].end);
  }
  const auto median = [&](std::size_t range, bool backward) {
    std::vector<double> seconds;
    for (std::size_t i = range * of_range; i < (range + 1) * of_range; i += 2)
      seconds.push_back(std::max(0.0, in[i].end - in[i].begin) +
                        (backward ? std::max(0.0, in[i + 1].end - in[i + 1].begin) : 0));
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
  };
  double way = 0, forward = 0;
  for (std::size_t range = 0; range < ranges; ++range) {
    way += median(range, true) / static_cast<double>(ranges);
    forward += median(range, false) / static_cast<double>(ranges);
  }
  stage.way_seconds = std::min(stage.seconds, way);
  stage.forward_way_seconds = std::min(stage.way_seconds, forward);
}

}  // namespace

StagePlan stage_plan(const Graph& graph, const Plan& plan, Bytes peak, const Machine& machine) {
  const PlanTally where = tally(graph, plan);
  StagePlan of;
  of.seconds = plan.predicted_step_seconds;
  of.bound_seconds = plan.lower_bound_seconds;
  of.stall_seconds = plan.predicted_stall_seconds;
  set_ways(graph, plan, machine, of);
  of.bound_by = plan.bound_by;
  of.order = plan.order;
  of.peak = peak;
  of.host = plan.host_bytes;
  of.resident = where.resident.bytes;
  of.streamed = where.streamed.bytes + where.held.bytes;
  of.kept = where.kept.bytes;
  of.offloaded = where.offloaded.bytes;
  of.recomputed = where.recomputed.bytes;
  return of;
}

}  // namespace stowage
