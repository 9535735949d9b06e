#include "samples/report/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

using nlohmann::json;

// A prefetch, a launch, an offload and a host step.
struct Step {
  Graph graph;
  Plan plan;
  std::vector<Interval> planned = {{0, 0.001}, {0.001, 0.003}, {0.003, 0.004}, {0.004, 0.0045}};
  std::vector<Interval> measured = {{0, 0.002}, {0.002, 0.005}, {0.005, 0.006}, {0.006, 0.008}};

  Step() {
    graph.ops.resize(2);
    graph.ops[0].name = "h.0.linear";
    graph.ops[0].kernel = "linear";
    graph.ops[1].name = "adamw.w";
    graph.ops[1].kernel = "adamw";
    graph.ops[1].phase = Phase::update;
    plan.buckets.resize(1);
    plan.buckets[0].name = "parameters.0";
    plan.buckets[0].bytes = 4096;
    plan.buckets[0].residency = Residency::streamed;
    plan.lifetimes.resize(1);
    plan.lifetimes[0].bucket = 0;
    add(InstructionKind::prefetch, LaneRole::h2d, no_id, 0);
    add(InstructionKind::launch, LaneRole::compute, 0, no_id);
    add(InstructionKind::offload, LaneRole::d2h, no_id, 0);
    add(InstructionKind::commit, LaneRole::host, 1, no_id);
  }
  void add(InstructionKind kind, LaneRole lane, OpId op, LifetimeId lifetime) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.lane = lane;
    instruction.op = op;
    instruction.lifetime = lifetime;
    plan.instructions.push_back(instruction);
  }
};

TEST(Trace, TwoProcessesWithAThreadPerLane) {
  const Step step;
  const json trace = json::parse(trace_json(step.graph, step.plan, step.planned, step.measured));
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "M") continue;
    const int process = event.at("pid");
    if (event.at("name") == "process_name") processes[process] = event.at("args").at("name");
    if (event.at("name") == "thread_name") threads[{process, event.at("tid")}] = event.at("args").at("name");
  }
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes.begin()->second, "planned");
  EXPECT_EQ(processes.rbegin()->second, "measured");
  ASSERT_EQ(threads.size(), 8U);
  std::map<int, std::vector<std::string>> lanes;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X")
      lanes[event.at("pid")].push_back(threads.at({event.at("pid"), event.at("tid")}));
  }
  const std::vector<std::string> wanted = {"h2d", "compute", "d2h", "host"};
  EXPECT_EQ(lanes[processes.begin()->first], wanted);
  EXPECT_EQ(lanes[processes.rbegin()->first], wanted);
}

TEST(Trace, EveryInstructionWithNameKindAndTimes) {
  const Step step;
  const json trace = json::parse(trace_json(step.graph, step.plan, step.planned, step.measured));
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") events.push_back(event);
  }
  ASSERT_EQ(events.size(), 8U);
  const char* names[] = {"parameters.0", "h.0.linear", "parameters.0", "adamw.w"};
  const char* kinds[] = {"prefetch", "launch", "offload", "commit"};
  for (std::size_t i = 0; i < 8; ++i) {
    const Interval& interval = i < 4 ? step.planned[i] : step.measured[i - 4];
    EXPECT_EQ(events[i].at("name"), names[i % 4]);
    std::string kind = events[i].at("cat");
    std::replace(kind.begin(), kind.end(), ' ', '_');
    EXPECT_EQ(kind, kinds[i % 4]);
    EXPECT_DOUBLE_EQ(events[i].at("ts"), interval.begin * 1e6);
    EXPECT_NEAR(events[i].at("dur"), (interval.end - interval.begin) * 1e6, 1e-6);
  }
  EXPECT_EQ(events[0].at("args").at("bytes"), 4096);
  EXPECT_EQ(events[1].at("args").at("kernel"), "linear");
}

TEST(Trace, WithoutAMeasuredStep) {
  const Step step;
  const json trace = json::parse(trace_json(step.graph, step.plan, step.planned, {}));
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") {
      EXPECT_EQ(event.at("pid"), 1);
    }
  }
}

TEST(Trace, RefusesAnotherPlansTimeline) {
  const Step step;
  EXPECT_THROW(trace_json(step.graph, step.plan, std::vector<Interval>(3), {}), InvalidInput);
}

}  // namespace
}  // namespace stowage::samples
