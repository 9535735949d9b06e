#include "tools/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tools/report/check_report_input.h"

namespace stowage::report {
namespace {

using nlohmann::json;

constexpr std::size_t tensors_named = 6;  // tensors of a bucket that are named

class StringTable {
 public:
  std::size_t id(std::string_view text) {
    const auto [place, added] = ids_.try_emplace(std::string(text), strings_.size());
    if (added) strings_.emplace_back(text);
    return place->second;
  }
  json strings() const { return strings_; }

 private:
  std::unordered_map<std::string, std::size_t> ids_;
  std::vector<std::string> strings_;
};

json id_or_none(std::uint32_t id) { return id == no_id ? json(-1) : json(id); }
json limit_or_null(Bytes bytes) { return bytes == unlimited ? json() : json(bytes); }

template <class Enum>
json words(Enum last) {
  json list = json::array();
  for (int i = 0; i <= static_cast<int>(last); ++i) list.push_back(to_string(static_cast<Enum>(i)));
  return list;
}

json names() {
  return {{"kinds", words(TensorKind::workspace)},
          {"residencies", words(Residency::host)},
          {"instructions", words(InstructionKind::speculate)},
          {"lanes", words(LaneRole::peer)},
          {"phases", words(Phase::update)}};
}

struct Transfers {
  std::vector<int> prefetches;  // number of prefetches of each bucket
  std::vector<int> offloads;
};

Transfers count_transfers(const Plan& plan) {
  Transfers counts{std::vector<int>(plan.buckets.size()), std::vector<int>(plan.buckets.size())};
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind == InstructionKind::prefetch)
      ++counts.prefetches[plan.lifetimes[instruction.lifetime].bucket];
    if (instruction.kind == InstructionKind::offload)
      ++counts.offloads[plan.lifetimes[instruction.lifetime].bucket];
  }
  return counts;
}

json buckets_json(const Graph& graph, const Plan& plan, StringTable& table) {
  const Transfers transfers = count_transfers(plan);
  json list = json::array();
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    const Bucket& bucket = plan.buckets[id];
    json row = {table.id(bucket.name),
                static_cast<int>(bucket.kind),
                static_cast<int>(bucket.residency),
                (bucket.on_host() ? 1 : 0) + (bucket.pinned() ? 2 : 0),
                bucket.bytes,
                transfers.prefetches[id],
                transfers.offloads[id],
                bucket.tensors.size()};
    for (std::size_t i = 0; i < std::min(tensors_named, bucket.tensors.size()); ++i)
      row.push_back(table.id(graph.tensor(bucket.tensors[i].tensor).name));
    list.push_back(std::move(row));
  }
  return list;
}

json lifetimes_json(const Plan& plan) {
  json list = json::array();
  for (const Lifetime& lifetime : plan.lifetimes) {
    list.push_back(lifetime.bucket);
    list.push_back(lifetime.first);
    list.push_back(lifetime.last);
    list.push_back(lifetime.offset);
    list.push_back(id_or_none(lifetime.end));
  }
  return list;
}

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

json instructions_json(const Plan& plan, const Timeline& timeline) {
  json list = json::array();
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    list.push_back(static_cast<int>(instruction.kind));
    list.push_back(static_cast<int>(instruction.lane));
    list.push_back(is_transfer(instruction.kind) ? json(-1) : json(instruction.op));
    list.push_back(is_transfer(instruction.kind) ? json(instruction.lifetime) : json(-1));
    list.push_back(nanoseconds(timeline.instructions[id].begin));
    list.push_back(nanoseconds(timeline.instructions[id].end));
  }
  return list;
}

json waits_json(const Instruction& instruction) {
  json list = json::array();
  for (const Wait& wait : instruction.waits) {
    const auto id = static_cast<std::int64_t>(wait.instruction);
    list.push_back(wait.steps_back == 0 ? id : -1 - id);
  }
  return list;
}

json ops_json(const Graph& graph, StringTable& table) {
  json list = json::array();
  for (const Op& op : graph.ops) {
    list.push_back(table.id(op.name));
    list.push_back(table.id(op.kernel));
    list.push_back(static_cast<int>(op.phase));
    list.push_back(op.unit < graph.unit_names.size() ? json(table.id(graph.unit_names[op.unit])) : json(-1));
  }
  return list;
}

json curve_json(std::vector<CurvePoint> curve) {
  std::stable_sort(curve.begin(), curve.end(),
                   [](const CurvePoint& a, const CurvePoint& b) { return a.budget_bytes < b.budget_bytes; });
  json list = json::array();
  for (const CurvePoint& point : curve) {
    const json bytes = limit_or_null(point.budget_bytes);
    list.push_back(point.feasible ? json{bytes, point.step_seconds, point.lower_bound_seconds}
                                  : json{bytes, nullptr, nullptr});
  }
  return list;
}

json columns_json(const std::vector<RunColumn>& columns) {
  json list = json::array();
  for (const RunColumn& column : columns) {
    list.push_back(column.first);
    list.push_back(column.last);
    list.push_back(column.least);
    list.push_back(column.mean);
    list.push_back(column.most);
  }
  return list;
}

json chart_json(const RunChart& chart) {
  json lines = json::array();
  for (const RunLine& line : chart.lines)
    lines.push_back({{"name", line.name}, {"points", line.points}, {"columns", columns_json(line.columns)}});
  return {{"title", chart.title}, {"logarithmic", chart.logarithmic}, {"lines", std::move(lines)}};
}

}  // namespace

json run_data(const RunHistory& run) {
  json charts = json::array();
  for (const RunChart& chart : run.charts) charts.push_back(chart_json(chart));
  return charts;
}

json report_data(const Graph& graph, const Plan& plan, const Timeline& timeline, const Machine& machine,
                 const ReportOptions& options) {
  StringTable table;
  json data = {
      {"names", names()},
      {"buckets", buckets_json(graph, plan, table)},
      {"lifetimes", lifetimes_json(plan)},
      {"instructions", instructions_json(plan, timeline)},
      {"ops", ops_json(graph, table)},
      {"positions", positions_of(plan)},
      {"period", nanoseconds(timeline.step_seconds)},
      {"gate", id_or_none(plan.gate)},
      {"peak", plan.device_peak_bytes},
      {"room", limit_or_null(machine.arena_in(options.budget.device))},
      {"limit", limit_or_null(options.budget.device)},
      {"overhead", machine.overhead_bytes},
      {"predicted", std::isfinite(plan.predicted_step_seconds) ? json(plan.predicted_step_seconds) : json()},
      {"curve", curve_json(options.curve)},
      {"run", options.run ? run_data(*options.run) : json::array()}};
  json uses = json::array();
  json waits = json::array();
  for (const Instruction& instruction : plan.instructions) {
    uses.push_back(instruction.uses);
    waits.push_back(waits_json(instruction));
  }
  data["uses"] = std::move(uses);
  data["waits"] = std::move(waits);
  data["strings"] = table.strings();
  return data;
}

}  // namespace stowage::report
