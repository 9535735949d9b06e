// What emulated systems do on one of several ranks: how often parameters are gathered, and what comes when.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "offload/plan/policies/policies.h"
#include "stowage/models.h"

namespace stowage {
namespace {

constexpr std::int64_t layers = 4;

// One of four, with so many micro-batches of all.
Graph rank_of_gpt(std::int64_t micro_batches) {
  ModelConfig config{
      .layers = layers, .width = 64, .heads = 2, .vocabulary = 128, .sequence = 32, .batch = 16};
  config.micro_batches = config.gradient_groups = micro_batches;
  config.ranks = 4;
  config.dropout = 0;
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, config);
  return builder.finish(model.loss, AdamW{});
}

// All lanes matter.
Machine balanced_rank() {
  Machine machine;
  machine.h2d = machine.d2h = {.bytes_per_second = 1e9, .latency_seconds = 1e-6, .throttled = true};
  machine.peer = {.bytes_per_second = 4e9, .latency_seconds = 1e-6, .throttled = true};
  machine.flops_per_second = 50e9;
  machine.host_bytes_per_second = 5e9;
  machine.launch_seconds = 1e-6;
  return machine;
}

// Backward reads the matrices, but no bias.
bool is_of_a_matrix(const std::string& name) {
  return name.starts_with("h.") && name.find(".weight") != std::string::npos &&
         name.find(".c_") != std::string::npos;
}

// How often each matrix of a block is gathered in a step.
std::map<std::string, int> gathers_of_matrices(const Graph& graph, const Plan& plan) {
  std::map<std::string, int> count;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.op == no_id) continue;
    const Op& op = graph.op(instruction.op);
    if (op.kernel == "gather" && is_of_a_matrix(op.name)) ++count[op.name];
  }
  return count;
}

class RankPolicies : public ::testing::TestWithParam<std::int64_t> {
 protected:
  RankPolicies() : graph_(rank_of_gpt(GetParam())) {}

  std::vector<PolicyMember> members(Policy policy) { return policy_members(policy, problems_); }
  Plan valid_plan(const PolicyMember& member) const {
    Plan plan = policy_plan(member);
    for (const std::string& finding : validate(graph_, plan, {})) ADD_FAILURE() << finding;
    return plan;
  }

  const Graph graph_;
  const Machine machine_ = balanced_rank();
  PolicyProblems problems_{graph_, machine_, 0};
};

TEST_P(RankPolicies, GatherEachBlockAsOftenAsTheirOriginals) {
  for (const Policy policy : every_policy) {
    if (!is_emulated(policy)) continue;
    for (const PolicyMember& member : members(policy)) {
      SCOPED_TRACE(std::string(to_string(policy)) + ", " + std::string(to_string(member.activations)));
      const auto gathers = gathers_of_matrices(graph_, valid_plan(member));
      ASSERT_EQ(gathers.size(), static_cast<std::size_t>(4 * layers));
      for (const auto& [name, count] : gathers)
        ASSERT_EQ(count, member.gathered == Gathered::again ? 2 : 1) << name;
    }
  }
}

TEST_P(RankPolicies, WholeParametersAreThereTwiceOrFromForwardToBackward) {
  for (const PolicyMember& member : members(Policy::fsdp2)) {
    const Plan plan = valid_plan(member);
    std::map<BucketId, std::ptrdiff_t> lifetimes;
    for (const Lifetime& lifetime : plan.lifetimes) ++lifetimes[lifetime.bucket];
    for (BucketId id = 0; id < plan.buckets.size(); ++id) {
      const std::string& name = graph_.tensor(plan.buckets[id].tensors.front().tensor).name;
      if (!is_of_a_matrix(name) || !name.ends_with(".whole")) continue;
      EXPECT_EQ(lifetimes[id], member.gathered == Gathered::again ? 2 : 1) << name;
    }
  }
}

TEST_P(RankPolicies, ZeroOffloadKeepsWholeParametersAndOthersDropThem) {
  for (const PolicyMember& member : members(Policy::zero_offload)) EXPECT_EQ(member.gathered, Gathered::stay);
  for (const Policy policy : {Policy::zero_infinity, Policy::gemini_cpu, Policy::layer_stream})
    for (const PolicyMember& member : members(policy)) EXPECT_EQ(member.gathered, Gathered::again);
}

TEST_P(RankPolicies, Fsdp2DoesNothingBesideTheUpdate) {
  for (const PolicyMember& member : members(Policy::fsdp2)) {
    const Plan plan = valid_plan(member);
    const Timeline timeline = simulate(graph_, plan, machine_);
    double updated = 0, first = timeline.step_seconds;
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
      const Interval& when = timeline.instructions[id];
      if (plan.instructions[id].kind == InstructionKind::commit)
        updated = std::max(updated, when.end - timeline.step_seconds);
      else if (id < plan.gate)
        first = std::min(first, when.begin);
    }
    EXPECT_GT(updated, 0);
    EXPECT_GE(first, updated - 1e-12);
  }
}

TEST_P(RankPolicies, Fsdp2BringsABlockAsOneGroup) {
  for (const PolicyMember& member : members(Policy::fsdp2)) {
    const Plan plan = valid_plan(member);
    int groups = 0;
    for (const Bucket& bucket : plan.buckets) {
      std::map<std::string, int> matrices;  // by block
      for (const BucketTensor& tensor : bucket.tensors) {
        const Tensor& of = graph_.tensor(tensor.tensor);
        if (of.kind == TensorKind::parameter && of.name.starts_with("h.") && of.shape.size() == 2)
          ++matrices[of.name.substr(0, 4)];
      }
      if (matrices.empty()) continue;
      ++groups;
      EXPECT_EQ(matrices.size(), 1U);
      // With micro-batches a group is half a block, as are units.
      EXPECT_EQ(matrices.begin()->second, graph_.micro_batches > 1 ? 2 : 4);
    }
    EXPECT_EQ(groups, graph_.micro_batches > 1 ? 2 * layers : layers);
  }
}

// By the order of their first use: where each transfer may start, and where its first use is.
struct Coming {
  Position first_use = 0;
  Position begin = 0;
};
std::vector<Coming> prefetches(const Plan& plan) {
  std::vector<Position> use(plan.lifetimes.size(), -1);
  Position position = 0;
  for (const Instruction& instruction : plan.instructions) {
    if (!runs_on_device(instruction)) continue;
    for (const LifetimeId id : instruction.uses)
      if (use[id] < 0) use[id] = position;
    ++position;
  }
  std::vector<Coming> coming;
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::prefetch)
      coming.push_back({use[instruction.lifetime], plan.lifetimes[instruction.lifetime].first});
  return coming;
}

TEST_P(RankPolicies, Fsdp2IsOneOrTwoTransfersAhead) {
  for (const PolicyMember& member : members(Policy::fsdp2)) {
    const std::vector<Coming> coming = prefetches(valid_plan(member));
    for (std::size_t i = member.distance; i < coming.size(); ++i)
      EXPECT_GE(coming[i].begin, coming[i - member.distance].first_use) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, RankPolicies, ::testing::Values(4, 16));

}  // namespace
}  // namespace stowage
