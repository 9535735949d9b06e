#include "offload/plan/policies/policies.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "offload/plan/problem/units.h"
#include "offload/plan/search/cells.h"
#include "stowage/models.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

constexpr std::uint64_t graphs = testing::draws<std::uint64_t>(120, 16);
constexpr std::uint64_t compared_graphs = testing::draws<std::uint64_t>(8, 2);

std::vector<Policy> emulated_policies() {
  std::vector<Policy> policies;
  for (Policy policy : every_policy)
    if (is_emulated(policy)) policies.push_back(policy);
  return policies;
}

std::string joined(const std::vector<std::string>& findings) {
  std::string text;
  for (const std::string& finding : findings) text += finding + "\n";
  return text;
}

// Every other graph is that of one of 2 or 4 ranks, half of these with micro-batches. Of three graphs without
// micro-batches two have units that pair up to blocks. Of five graphs two have parameters that are not
// trained and ops that nothing computes again.
Graph random_step(std::uint64_t seed) {
  testing::RandomGraphOptions options;
  if (seed % 2 == 1) options.share = {0, seed % 8 < 4 ? 2U : 4U};
  if (seed % 5 < 2) options.frozen_percent = 40, options.fixed_percent = 20;
  if (seed % 4 == 3) options.micro_batches = options.gradient_groups = 2, options.max_units = 3;
  Graph graph = testing::random_graph(seed, options);
  if (seed % 3 == 0 || graph.micro_batches > 1) return graph;
  for (std::size_t unit = 0; unit < graph.unit_names.size(); ++unit)
    graph.unit_names[unit] = "b" + std::to_string(unit / 2) + "." + graph.unit_names[unit];
  return graph;
}

Graph small_gpt(std::int64_t layers = 4) {
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, {.layers = layers,
                                         .width = 64,
                                         .heads = 2,
                                         .vocabulary = 128,
                                         .sequence = 32,
                                         .batch = 2,
                                         .dropout = 0});
  return builder.finish(model.loss, AdamW{});
}

// All lanes matter.
Machine balanced_machine() {
  Machine machine;
  machine.h2d = machine.d2h = {.bytes_per_second = 1e9, .latency_seconds = 1e-6, .throttled = true};
  machine.flops_per_second = 50e9;
  machine.host_bytes_per_second = 5e9;
  machine.launch_seconds = 1e-6;
  return machine;
}

Plan plan_for(const Graph& graph, const Machine& machine, Policy policy, Bytes budget = unlimited,
              Bytes bucket_bytes = 0) {
  auto planned =
      make_plan(graph, machine, {.device = budget}, {.policy = policy, .bucket_bytes = bucket_bytes});
  if (const auto* none = std::get_if<Infeasible>(&planned))
    ADD_FAILURE() << "infeasible: needs " << none->minimum << " for " << none->op;
  return std::get<Plan>(std::move(planned));
}

TEST(Policies, HaveNamesThatAreReadBack) {
  for (Policy policy : every_policy) EXPECT_EQ(policy_from(to_string(policy)), policy);
  EXPECT_FALSE(policy_from("fast").has_value());
  EXPECT_EQ(emulated_policies().size(), every_policy.size() - 2);
  EXPECT_EQ(policy_label("zero-offload"), "zero-offload (emulated)");
  EXPECT_EQ(policy_label("auto"), "auto");
  EXPECT_EQ(policy_label("<other>"), "<other>");
}

TEST(Policies, ABlockIsBothOfItsHalves) {
  const Graph graph = small_gpt(2);
  const Graph blocks = with_whole_blocks(graph);
  EXPECT_EQ(blocks.unit_names, (std::vector<std::string>{"embedding", "h.0", "h.1", "head"}));
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    if (graph.op(op).unit == no_id) {
      EXPECT_EQ(blocks.op(op).unit, no_id);
    } else {
      EXPECT_EQ(graph.unit_names[graph.op(op).unit].find(blocks.unit_names[blocks.op(op).unit]), 0U);
    }
  }
  check(blocks);
}

class EveryPolicy : public ::testing::TestWithParam<Policy> {};

TEST_P(EveryPolicy, MakesValidPlansFromItsMinimumUp) {
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_step(seed);
    const Machine machine = testing::machine_with_peers(seed);
    const PlanOptions options{.policy = GetParam(),
                              .bucket_bytes = seed % 4 == 0 ? Bytes{4096} << (seed % 5) : 0};
    const Bytes least = minimum_bytes(graph, machine, options);
    double seconds = std::numeric_limits<double>::infinity();
    for (Bytes budget : {least, least + least / 2, unlimited}) {
      const Plan plan = plan_for(graph, machine, GetParam(), budget, options.bucket_bytes);
      ASSERT_EQ(joined(validate(graph, plan, {budget, unlimited})), "") << "budget " << budget;
      ASSERT_EQ(plan.policy, to_string(GetParam()));
      ASSERT_LE(plan.device_peak_bytes, budget);
      ASSERT_GT(plan.lower_bound_seconds, 0);
      ASSERT_LE(plan.predicted_step_seconds, seconds) << "slower with more memory";
      seconds = plan.predicted_step_seconds;
    }
    const auto below = make_plan(graph, machine, {.device = least - 1}, options);
    ASSERT_TRUE(std::holds_alternative<Infeasible>(below));
    EXPECT_EQ(std::get<Infeasible>(below).minimum, least);
    EXPECT_FALSE(std::get<Infeasible>(below).host);
    EXPECT_NE(std::get<Infeasible>(below).op, "");
  }
}

TEST_P(EveryPolicy, SaysWhatHostMemoryWouldDo) {
  const Graph graph = small_gpt();
  const PlanOptions options{.policy = GetParam()};
  const Bytes enough = plan_for(graph, Machine{}, GetParam()).host_bytes;
  const auto refused = make_plan(graph, Machine{}, {.device = unlimited, .host = 8}, options);
  ASSERT_TRUE(std::holds_alternative<Infeasible>(refused));
  const auto& none = std::get<Infeasible>(refused);
  EXPECT_TRUE(none.host);
  EXPECT_LE(none.minimum, enough);
  EXPECT_TRUE(std::holds_alternative<Plan>(
      make_plan(graph, Machine{}, {.device = unlimited, .host = none.minimum}, options)));
  EXPECT_TRUE(std::holds_alternative<Infeasible>(
      make_plan(graph, Machine{}, {.device = unlimited, .host = none.minimum - 1}, options)));
}

INSTANTIATE_TEST_SUITE_P(All, EveryPolicy, ::testing::ValuesIn(emulated_policies()), [](const auto& info) {
  std::string name(to_string(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// By what plans are compared by: their time and the price of their transfers and replays.
TEST(Policies, AreNeverFasterThanTheAutomaticOneNorSmaller) {
  for (std::uint64_t seed = 0; seed < compared_graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_step(seed);
    const Machine machine = testing::machine_with_peers(seed + 1000);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    const auto seconds = [&](const Plan& plan) { return ranked(plan, problem, {}).ranked_seconds; };
    Planner automatic(graph, machine);
    for (const Policy policy : emulated_policies()) {
      SCOPED_TRACE(to_string(policy));
      Planner emulated(graph, machine, {.policy = policy});
      const Bytes least = emulated.minimum_bytes();
      ASSERT_LE(automatic.minimum_bytes(), least);
      for (Bytes budget : {least, least + least / 2}) {
        const auto other = emulated.answer({.device = budget}).outcome;
        ASSERT_TRUE(std::holds_alternative<Plan>(other));
        const Plan& theirs = std::get<Plan>(other);
        for (const Bytes host : {unlimited, theirs.host_bytes}) {
          const auto ours = automatic.answer({.device = budget, .host = host}).outcome;
          ASSERT_TRUE(std::holds_alternative<Plan>(ours));
          ASSERT_LE(seconds(std::get<Plan>(ours)), seconds(theirs))
              << "budget " << budget << ", host " << host;
        }
      }
    }
  }
}

// What the timeline of two steps says about a plan: times from the beginning of a step.
struct Times {
  double first_compute = 0;
  double first_parameter_load = 0;
  double last_parameter_load_of_first_position = 0;
  double last_update = 0;  // end, of the step before
};
Times times_of(const Graph& graph, const Machine& machine, const Plan& plan) {
  const Timeline timeline = simulate(graph, plan, machine);
  Times times;
  times.first_compute = times.first_parameter_load = std::numeric_limits<double>::infinity();
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    const Interval& interval = timeline.instructions[id];
    if (instruction.lane == LaneRole::compute)
      times.first_compute = std::min(times.first_compute, interval.begin);
    if (instruction.kind == InstructionKind::commit && runs_on_host(instruction))
      times.last_update = std::max(times.last_update, interval.end - timeline.step_seconds);
    if (instruction.kind != InstructionKind::prefetch) continue;
    const Lifetime& lifetime = plan.lifetimes[instruction.lifetime];
    if (plan.buckets[lifetime.bucket].kind != TensorKind::parameter) continue;
    times.first_parameter_load = std::min(times.first_parameter_load, interval.begin);
    if (lifetime.first == 0)
      times.last_parameter_load_of_first_position =
          std::max(times.last_parameter_load_of_first_position, interval.end);
  }
  return times;
}

std::vector<Residency> residencies(const Plan& plan, TensorKind kind) {
  std::vector<Residency> found;
  for (const Bucket& bucket : plan.buckets)
    if (bucket.kind == kind) found.push_back(bucket.residency);
  return found;
}

class PolicyMechanisms : public ::testing::Test {
 protected:
  // At its least memory, where it does what it is known for.
  Plan tight(Policy policy) const {
    return plan_for(graph_, machine_, policy, minimum_bytes(graph_, machine_, {.policy = policy}));
  }
  Graph graph_ = small_gpt();
  Machine machine_ = balanced_machine();
};

TEST_F(PolicyMechanisms, ZeroOffloadHoldsParametersAndWaitsForAllOfThem) {
  const Plan plan = tight(Policy::zero_offload);
  Position end = 0;
  for (const Lifetime& lifetime : plan.lifetimes) end = std::max(end, lifetime.last);
  for (const Lifetime& lifetime : plan.lifetimes) {
    if (plan.buckets[lifetime.bucket].kind != TensorKind::parameter) continue;
    EXPECT_EQ(lifetime.first, 0);
    EXPECT_EQ(lifetime.last, end);
  }
  const Times times = times_of(graph_, machine_, plan);
  EXPECT_GT(times.last_update, 0);
  EXPECT_GE(times.first_compute, times.last_parameter_load_of_first_position);
  // Updated parameters go back while others are updated.
  EXPECT_LT(times.first_parameter_load, times.last_update);
}

TEST_F(PolicyMechanisms, ZeroInfinityAndGeminiDoNothingBesideTheUpdate) {
  for (Policy policy : {Policy::zero_infinity, Policy::gemini_cpu}) {
    const Times times = times_of(graph_, machine_, tight(policy));
    EXPECT_GT(times.last_update, 0);
    EXPECT_GE(times.first_compute, times.last_update - 1e-12);
    EXPECT_GE(times.first_parameter_load, times.last_update - 1e-12);
  }
}

TEST_F(PolicyMechanisms, LayerStreamUpdatesBesideTheNextForward) {
  const Times times = times_of(graph_, machine_, tight(Policy::layer_stream));
  EXPECT_LT(times.first_compute, times.last_update);
}

TEST_F(PolicyMechanisms, CheckpointKeepsStateAndBlockInputsAlone) {
  const Plan plan = tight(Policy::checkpoint);
  for (Residency residency : residencies(plan, TensorKind::parameter))
    EXPECT_EQ(residency, Residency::resident);
  for (Residency residency : residencies(plan, TensorKind::optimizer_state))
    EXPECT_EQ(residency, Residency::resident);
  std::vector<std::uint8_t> rebuilt(graph_.unit_names.size(), 0);
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::recompute) rebuilt[graph_.op(instruction.op).unit] = 1;
  for (std::size_t unit = 0; unit < rebuilt.size(); ++unit)
    EXPECT_EQ(rebuilt[unit] != 0, graph_.unit_names[unit].starts_with("h.")) << graph_.unit_names[unit];
}

// A whole block is rebuilt: what crosses from attention to MLP is among it, which units of half a block never
// rebuild.
TEST_F(PolicyMechanisms, EveryEmulationRebuildsWholeBlocks) {
  OpId residual = no_id;
  for (OpId op = 0; op < graph_.ops.size(); ++op)
    if (graph_.op(op).name == "h.1.attn.residual") residual = op;
  ASSERT_NE(residual, no_id);
  for (Policy policy : emulated_policies()) {
    const Plan plan = tight(policy);
    EXPECT_TRUE(std::any_of(plan.instructions.begin(), plan.instructions.end(), [&](const Instruction& i) {
      return i.kind == InstructionKind::recompute && i.op == residual;
    })) << to_string(policy);
  }
}

// A chunk comes once for a block's forward, once for its rebuilding and once for its backward, and stays
// while ops that need no other chunk run.
TEST_F(PolicyMechanisms, GeminiBringsAChunkThreeTimes) {
  const Bytes chunk = Bytes{4} * 64 * 64 * 4;  // both matrices of an attention
  const Plan plan = plan_for(graph_, machine_, Policy::gemini_cpu,
                             minimum_bytes(graph_, machine_, {Policy::gemini_cpu, chunk}), chunk);
  const auto holds = [&](const Bucket& bucket, std::string_view name) {
    return std::any_of(bucket.tensors.begin(), bucket.tensors.end(),
                       [&](const BucketTensor& tensor) { return graph_.tensor(tensor.tensor).name == name; });
  };
  std::ptrdiff_t loads = 0;
  for (const Lifetime& lifetime : plan.lifetimes) {
    const Bucket& bucket = plan.buckets[lifetime.bucket];
    if (!holds(bucket, "h.1.attn.c_attn.weight")) continue;
    EXPECT_TRUE(holds(bucket, "h.1.attn.c_proj.weight"));
    ++loads;
  }
  EXPECT_EQ(loads, 3);
}

TEST_F(PolicyMechanisms, GeminisTransfersAndOpsTakeTurnsInItsFirstVersions) {
  PolicyProblems problems(graph_, machine_, 0);
  int serial = 0;
  for (const PolicyMember& member : policy_members(Policy::gemini_cpu, problems)) {
    if (member.distance > 0) continue;
    ++serial;
    const Plan plan = policy_plan(member);
    EXPECT_EQ(joined(validate(graph_, plan, {})), "");
    const std::vector<Interval> times = simulate(graph_, plan, machine_).instructions;
    for (InstructionId a = 0; a < plan.gate; ++a)
      for (InstructionId b = 0; b < plan.gate; ++b) {
        if (plan.instructions[a].lane != LaneRole::compute) continue;
        if (plan.instructions[b].lane == LaneRole::compute) continue;
        EXPECT_TRUE(times[b].end <= times[a].begin + 1e-12 || times[b].begin >= times[a].end - 1e-12);
      }
  }
  EXPECT_EQ(serial, 2);
}

TEST_F(PolicyMechanisms, LayerStreamMovesWholeBlocks) {
  const Plan plan = tight(Policy::layer_stream);
  for (const Bucket& bucket : plan.buckets) {
    if (bucket.kind != TensorKind::parameter || bucket.bytes < 64 * 64) continue;
    std::vector<std::string> blocks;
    for (const BucketTensor& tensor : bucket.tensors)
      blocks.push_back(graph_.tensor(tensor.tensor).name.substr(0, 4));
    if (!blocks.front().starts_with("h.")) continue;
    EXPECT_EQ(std::count(blocks.begin(), blocks.end(), blocks.front()),
              static_cast<std::ptrdiff_t>(blocks.size()));
  }
}

}  // namespace
}  // namespace stowage
