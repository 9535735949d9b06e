#include "samples/report/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

using nlohmann::json;

constexpr int planned_process = 1;
constexpr int measured_process = 2;

int thread_of(LaneRole lane) { return static_cast<int>(lane) + 1; }

json named(const char* what, int process, int thread, std::string name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", std::move(name)}}}};
}

json sorted(const char* what, int process, int thread, int index) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"sort_index", index}}}};
}

// Names and order of one process and its lanes: h2d, compute, peer, d2h, host, as plan.h draws them. A lane
// on which the plan has nothing is left out if it is the peer lane.
void add_names(json& events, int process, const char* name, const Plan& plan) {
  const bool has_peers = std::any_of(plan.instructions.begin(), plan.instructions.end(),
                                     [](const Instruction& i) { return i.lane == LaneRole::peer; });
  events.push_back(named("process_name", process, 0, name));
  events.push_back(sorted("process_sort_index", process, 0, process));
  int index = 0;
  for (const LaneRole lane :
       {LaneRole::h2d, LaneRole::compute, LaneRole::peer, LaneRole::d2h, LaneRole::host}) {
    if (lane == LaneRole::peer && !has_peers) continue;
    events.push_back(named("thread_name", process, thread_of(lane), std::string(to_string(lane))));
    events.push_back(sorted("thread_sort_index", process, thread_of(lane), ++index));
  }
}

// Returns an instruction's name, and the details that the viewer shows when it is clicked.
struct Caption {
  std::string name;
  json details = json::object();
};

Caption caption(const Graph& graph, const Plan& plan, const Instruction& instruction) {
  if (instruction.op != no_id) {
    const Op& op = graph.op(instruction.op);
    return {op.name, {{"kernel", op.kernel}, {"phase", to_string(op.phase)}}};
  }
  const Bucket& bucket = plan.buckets[plan.lifetimes[instruction.lifetime].bucket];
  return {bucket.name, {{"bytes", bucket.bytes}, {"residency", to_string(bucket.residency)}}};
}

void add_intervals(json& events, int process, const Graph& graph, const Plan& plan,
                   std::span<const Interval> intervals) {
  if (intervals.empty()) return;
  if (intervals.size() != plan.instructions.size()) {
    throw InvalidInput("a timeline has other instructions than the plan: make both from the same plan");
  }
  constexpr double microseconds = 1e6;
  for (std::size_t id = 0; id < intervals.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    Caption what = caption(graph, plan, instruction);
    what.details["instruction"] = id;
    events.push_back({{"ph", "X"},
                      {"name", std::move(what.name)},
                      {"cat", to_string(instruction.kind)},
                      {"pid", process},
                      {"tid", thread_of(instruction.lane)},
                      {"ts", intervals[id].begin * microseconds},
                      {"dur", (intervals[id].end - intervals[id].begin) * microseconds},
                      {"args", std::move(what.details)}});
  }
}

}  // namespace

std::string trace_json(const Graph& graph, const Plan& plan, std::span<const Interval> planned,
                       std::span<const Interval> measured) {
  json events = json::array();
  add_names(events, planned_process, "planned", plan);
  add_names(events, measured_process, "measured", plan);
  add_intervals(events, planned_process, graph, plan, planned);
  add_intervals(events, measured_process, graph, plan, measured);
  return json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() + '\n';
}

}  // namespace stowage::samples
