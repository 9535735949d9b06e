#include "tools/report/check_report_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stowage/error.h"

namespace stowage::report {
namespace {

constexpr double longest_seconds = 1e9;  // times up to this are still exact to a nanosecond in 64 bits

template <class... Arguments>
void require(bool holds, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (holds) return;
  throw InvalidInput(
      "the plan is not of this graph: " + fmt::format(text, std::forward<Arguments>(arguments)...) +
      "; give the plan that make_plan made of the same graph");
}

template <class Enum>
bool known(Enum value, Enum last) {
  return value <= last;
}

void require_graph(const Graph& graph) {
  for (OpId id = 0; id < graph.ops.size(); ++id)
    require(known(graph.op(id).phase, Phase::update), "op {} has no phase", id);
}

void require_bucket(const Graph& graph, const Plan& plan, BucketId id) {
  const Bucket& bucket = plan.buckets[id];
  require(known(bucket.kind, TensorKind::workspace), "bucket {} has no kind", id);
  require(known(bucket.residency, Residency::host), "bucket {} has no residency", id);
  for (const BucketTensor& member : bucket.tensors) {
    require(member.tensor < graph.tensors.size(), "bucket {} holds tensor {} of {}", id, member.tensor,
            graph.tensors.size());
  }
}

void require_lifetime(const Plan& plan, LifetimeId id, Position positions) {
  const Lifetime& lifetime = plan.lifetimes[id];
  require(lifetime.bucket < plan.buckets.size(), "lifetime {} is of bucket {} of {}", id, lifetime.bucket,
          plan.buckets.size());
  require(lifetime.first >= 0 && lifetime.first < lifetime.last && lifetime.last <= positions,
          "lifetime {} is [{}, {}) in {} positions", id, lifetime.first, lifetime.last, positions);
  require(lifetime.end == no_id || lifetime.end < plan.instructions.size(),
          "lifetime {} ends with instruction {} of {}", id, lifetime.end, plan.instructions.size());
  const Bytes bytes = plan.buckets[lifetime.bucket].bytes;
  require(bytes <= plan.device_peak_bytes && lifetime.offset <= plan.device_peak_bytes - bytes,
          "lifetime {} has {} bytes at {} in an arena of {}", id, bytes, lifetime.offset,
          plan.device_peak_bytes);
}

void require_instruction(const Graph& graph, const Plan& plan, InstructionId id) {
  const Instruction& instruction = plan.instructions[id];
  require(known(instruction.kind, InstructionKind::speculate), "instruction {} has no kind", id);
  require(runs_on(instruction.kind, instruction.lane), "instruction {} is on another lane", id);
  if (is_transfer(instruction.kind)) {
    require(instruction.lifetime < plan.lifetimes.size(), "instruction {} moves lifetime {} of {}", id,
            instruction.lifetime, plan.lifetimes.size());
  } else {
    require(instruction.op < graph.ops.size(), "instruction {} runs op {} of {}", id, instruction.op,
            graph.ops.size());
  }
  for (const LifetimeId use : instruction.uses)
    require(use < plan.lifetimes.size(), "instruction {} uses lifetime {} of {}", id, use,
            plan.lifetimes.size());
  for (const Wait& wait : instruction.waits) {
    const InstructionId limit =
        wait.steps_back == 0 ? id : static_cast<InstructionId>(plan.instructions.size());
    require(wait.instruction < limit, "instruction {} waits for instruction {} of {}", id, wait.instruction,
            limit);
  }
}

bool in_order(const RunColumn& column) {
  return column.first <= column.last && std::isfinite(column.least) && std::isfinite(column.most) &&
         column.least <= column.mean && column.mean <= column.most;
}

void require_line(const RunChart& chart, const RunLine& line) {
  for (std::size_t i = 0; i < line.columns.size(); ++i) {
    const RunColumn& column = line.columns[i];
    const bool follows = i == 0 || line.columns[i - 1].last < column.first;
    if (in_order(column) && follows && !(chart.logarithmic && column.least <= 0)) continue;
    throw InvalidInput(fmt::format(
        "column {} of '{}' in the chart '{}' is of steps {} to {} with {} <= {} <= {}: give columns "
        "with rising steps and finite values in order, above 0 on a logarithmic axis",
        i, line.name, chart.title, column.first, column.last, column.least, column.mean, column.most));
  }
}

}  // namespace

Position positions_of(const Plan& plan) {
  return std::count_if(plan.instructions.begin(), plan.instructions.end(),
                       [](const Instruction& i) { return runs_on_device(i); });
}

void require_belongs(const Graph& graph, const Plan& plan) {
  require_graph(graph);
  const Position positions = positions_of(plan);
  for (BucketId id = 0; id < plan.buckets.size(); ++id) require_bucket(graph, plan, id);
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) require_instruction(graph, plan, id);
  for (LifetimeId id = 0; id < plan.lifetimes.size(); ++id) require_lifetime(plan, id, positions);
  require(plan.gate == no_id || plan.gate < plan.instructions.size(), "its gate is instruction {} of {}",
          plan.gate, plan.instructions.size());
}

void require_curve(const std::vector<CurvePoint>& curve) {
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const CurvePoint& point = curve[i];
    if (point.budget_bytes == 0)
      throw InvalidInput(fmt::format("point {} of the budget curve has no budget; give its device bytes", i));
    if (!point.feasible) continue;
    for (const double seconds : {point.step_seconds, point.lower_bound_seconds}) {
      if (!(std::isfinite(seconds) && seconds >= 0)) {
        throw InvalidInput(fmt::format(
            "point {} of the budget curve takes {} s; give finite times, or mark it infeasible", i, seconds));
      }
    }
  }
}

void require_times(const Timeline& timeline) {
  for (const Interval& interval : timeline.instructions) {
    const bool sound = interval.begin >= -longest_seconds && interval.begin <= interval.end &&
                       interval.end <= longest_seconds;
    if (!sound) {
      throw InvalidInput(
          fmt::format("an instruction runs from {} s to {} s on this machine; give rates above 0",
                      interval.begin, interval.end));
    }
  }
}

void require_run(const RunHistory& run) {
  for (const RunChart& chart : run.charts)
    for (const RunLine& line : chart.lines) require_line(chart, line);
}

}  // namespace stowage::report
