#include "offload/plan/policies/policies.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "offload/plan/problem/units.h"

namespace stowage {
namespace {

// Whether the item is a whole parameter that was gathered of all ranks' shares, and can be gathered anew:
// where all micro-batches of a block read it, its own op remakes it.
bool is_gathered_for_one_block(const Problem& problem, const ActivationItem& item) {
  return problem.graph->op(item.writer).kernel == "gather" && (item.rebuildable || item.remaker != no_id);
}

Plan named_plan(const PolicyMember& member, const Draft& draft) {
  Plan plan = complete(*member.problem, draft);
  plan.policy = to_string(member.policy);
  return plan;
}

using Add = void (*)(PolicyProblems&, std::vector<PolicyMember>&);
Add adder_of(Policy policy) {
  switch (policy) {
    case Policy::zero_offload:
      return add_zero_offload;
    case Policy::zero_infinity:
      return add_zero_infinity;
    case Policy::gemini_cpu:
      return add_gemini_cpu;
    case Policy::layer_stream:
      return add_layer_stream;
    case Policy::checkpoint:
      return add_checkpoint;
    case Policy::fsdp2:
      return add_fsdp2;
    case Policy::automatic:
    case Policy::none:
      break;
  }
  return [](PolicyProblems&, std::vector<PolicyMember>&) {};
}

}  // namespace

std::string_view to_string(Policy policy) {
  switch (policy) {
    case Policy::automatic:
      return "auto";
    case Policy::none:
      return "none";
    case Policy::zero_offload:
      return "zero-offload";
    case Policy::zero_infinity:
      return "zero-infinity";
    case Policy::gemini_cpu:
      return "gemini-cpu";
    case Policy::layer_stream:
      return "layer-stream";
    case Policy::checkpoint:
      return "checkpoint";
    case Policy::fsdp2:
      return "fsdp2";
  }
  return "?";
}

std::optional<Policy> policy_from(std::string_view name) {
  for (Policy policy : every_policy)
    if (to_string(policy) == name) return policy;
  return {};
}

bool is_emulated(Policy policy) { return policy != Policy::automatic && policy != Policy::none; }

std::string policy_label(std::string_view name) {
  const std::optional<Policy> policy = policy_from(name);
  return std::string(name) + (policy && is_emulated(*policy) ? " (emulated)" : "");
}

std::string_view to_string(Activations activations) {
  switch (activations) {
    case Activations::checkpoint:
      return "blocks rebuilt, their inputs on the device";
    case Activations::checkpoint_on_host:
      return "blocks rebuilt, their inputs on the host";
    case Activations::keep:
      return "nothing rebuilt";
  }
  return "?";
}

std::string_view to_string(Gathered gathered) {
  return gathered == Gathered::stay ? "stay" : "gathered anew";
}

PolicyProblems::PolicyProblems(const Graph& graph, const Machine& machine, Bytes bucket_bytes,
                               std::stop_token stop)
    : machine_(machine),
      bucket_bytes_(bucket_bytes),
      stop_(std::move(stop)),
      blocks_(with_whole_blocks(graph)) {}

Bytes PolicyProblems::element_bytes() const {
  const Tensor* largest = nullptr;
  for (const Tensor& tensor : blocks_.tensors)
    if (tensor.kind == TensorKind::parameter && (!largest || tensor.elements() > largest->elements()))
      largest = &tensor;
  return largest && largest->elements() > 0 ? largest->bytes() / static_cast<Bytes>(largest->elements()) : 4;
}

Bytes PolicyProblems::share_bytes(Bytes elements) const {
  return elements * element_bytes() / blocks_.share.ranks;
}

Bytes PolicyProblems::block_parameter_bytes() const {
  std::vector<Bytes> bytes(blocks_.unit_names.size(), 0);
  std::vector<std::uint8_t> counted(blocks_.tensors.size(), 0);
  for (const Op& op : blocks_.ops) {
    if (op.phase != Phase::forward || op.unit >= bytes.size()) continue;
    for (TensorId id : op.reads) {
      if (blocks_.tensor(id).kind != TensorKind::parameter || counted[id]) continue;
      counted[id] = 1;
      bytes[op.unit] += blocks_.tensor(id).bytes();
    }
  }
  // The ends of the model, embedding and head, are no blocks.
  const auto begin = bytes.size() > 2 ? bytes.begin() + 1 : bytes.begin();
  const auto end = bytes.size() > 2 ? bytes.end() - 1 : bytes.end();
  return begin == end ? 0 : *std::max_element(begin, end);
}

const Problem& PolicyProblems::with_buckets(Bytes target) {
  return with({.target_bytes = bucket_bytes_ > 0 ? bucket_bytes_ : target});
}

const Problem& PolicyProblems::with_single_tensors() {
  return with({.target_bytes = 0, .group_gradients = false});
}

const Problem& PolicyProblems::with(const BucketOptions& options) {
  for (const auto& [made_with, problem] : problems_)
    if (made_with.target_bytes == options.target_bytes &&
        made_with.group_gradients == options.group_gradients)
      return *problem;
  problems_.emplace_back(options, std::make_unique<Problem>(make_problem(
                                      blocks_, machine_, options, MicroBatchOrder::layer_major, stop_)));
  return *problems_.back().second;
}

Choices policy_choices(const Problem& problem, Activations activations, LoadChoice parameters,
                       Gathered gathered) {
  Choices choices;
  const std::size_t buckets = problem.layout.buckets.size();
  choices.activations.assign(buckets, ActivationChoice::recompute);
  for (const ActivationItem& item : problem.items) {
    const bool parameter = is_gathered_for_one_block(problem, item);
    if (parameter ? gathered == Gathered::again : item.rebuildable && activations != Activations::keep)
      continue;
    const bool host = activations == Activations::checkpoint_on_host && !parameter;
    choose(item, host ? ActivationChoice::offload : ActivationChoice::keep, choices);
  }
  choices.loads.assign(buckets, LoadChoice::held);
  for (BucketId id : problem.layout.parameters) choices.loads[id] = parameters;
  return choices;
}

std::vector<PolicyMember> policy_members(Policy policy, PolicyProblems& problems) {
  std::vector<PolicyMember> members;
  adder_of(policy)(problems, members);
  for (PolicyMember& member : members) member.policy = policy;
  return members;
}

std::vector<PolicyMember> all_policy_members(PolicyProblems& problems) {
  std::vector<PolicyMember> members;
  for (Policy policy : every_policy) {
    for (PolicyMember& member : policy_members(policy, problems)) {
      const Handicaps all = member.handicaps;
      PolicyMember freed = member;
      freed.handicaps.wait_for_loads = freed.handicaps.wait_for_updates = false;
      freed.handicaps.one_after_another = false;
      if (all.wait_for_loads || all.wait_for_updates || all.one_after_another) members.push_back(freed);
      freed.handicaps.hold_parameters = false;
      if (all.hold_parameters) members.push_back(freed);
      members.push_back(std::move(member));
    }
  }
  return members;
}

Sketch policy_sketch(const PolicyMember& member) {
  return Sketcher(*member.problem, member.choices, member.handicaps).ahead(member.distance);
}

Plan policy_plan(const PolicyMember& member) { return named_plan(member, policy_sketch(member).draft); }

std::variant<Plan, Infeasible> plan_policy(Policy policy, PolicyProblems& problems, const Budget& budget) {
  std::optional<Plan> best;
  Infeasible device{budget.device, unlimited, false, ""};
  Infeasible host{budget.host, unlimited, true, ""};
  for (const PolicyMember& member : policy_members(policy, problems)) {
    const Draft draft = policy_sketch(member).draft;
    Plan plan = named_plan(member, draft);
    if (plan.device_peak_bytes < device.minimum) {
      device.minimum = plan.device_peak_bytes;
      device.op = tightest_op(*member.problem, draft);
    }
    if (plan.device_peak_bytes > budget.device) continue;
    if (plan.host_bytes < host.minimum) {
      host.minimum = plan.host_bytes;
      host.op = tightest_op(*member.problem, draft);
    }
    if (plan.host_bytes > budget.host) continue;
    if (!best || plan.predicted_step_seconds < best->predicted_step_seconds) best = std::move(plan);
  }
  if (best) return std::move(*best);
  return host.minimum == unlimited ? device : host;
}

Bytes policy_minimum_bytes(Policy policy, PolicyProblems& problems) {
  Bytes least = unlimited;
  for (const PolicyMember& member : policy_members(policy, problems))
    least = std::min(least, policy_plan(member).device_peak_bytes);
  return least;
}

}  // namespace stowage
