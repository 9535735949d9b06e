#include "offload/plan/policies/policies.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "offload/plan/problem/units.h"
#include "offload/plan/schedule/waits.h"

namespace stowage {
namespace {

// True if the item is a whole parameter, gathered from all ranks' shares, that can be gathered again. If all
// micro-batches of a block read it, it has its own op as remaker.
bool is_gathered_for_one_block(const Problem& problem, const ActivationItem& item) {
  return problem.graph->op(item.writer).kernel == "gather" && (item.rebuildable || item.remaker != no_id);
}

// Adds extra waits to a plan. A lane waits as a whole if its first instruction waits, because lanes
// are in order.
class WaitAdder {
 public:
  WaitAdder(const Draft& draft, Plan& plan) : draft_(draft), plan_(plan) { find_ends(); }

  void add(const ExtraWaits& waits) {
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id)
      for (const Wait& on : plan_.instructions[id].waits) wanted_.push_back({id, on});
    for (const LaneRole lane : {LaneRole::compute, LaneRole::peer})
      if (waits.for_loads) want(first_[index_of(lane)], last_load_);
    for (const LaneRole lane : {LaneRole::compute, LaneRole::peer, LaneRole::h2d})
      if (waits.for_updates) want(first_[index_of(lane)], last_update_, 1);
    if (waits.one_after_another) add_turns();
    reduce_waits(plan_, wanted_);
  }

 private:
  void find_ends() {
    first_.fill(no_id);
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      const Instruction& instruction = plan_.instructions[id];
      InstructionId& lane_first = first_[index_of(instruction.lane)];
      if (lane_first == no_id) lane_first = id;
      if (runs_on_host(instruction) && instruction.kind == InstructionKind::commit) last_update_ = id;
      if (instruction.kind == InstructionKind::prefetch && draft_.lifetimes[instruction.lifetime].whole_step)
        last_load_ = id;
    }
  }
  // Makes ops and transfers take turns, up to the gate: behind it there is nothing to take turns with.
  void add_turns() {
    InstructionId op = no_id;
    std::vector<InstructionId> transfers;  // transfers since `op`
    for (InstructionId id = 0; id < plan_.gate; ++id) {
      if (is_transfer(plan_.instructions[id].kind)) {
        want(id, op);
        transfers.push_back(id);
      } else if (runs_on_device(plan_.instructions[id])) {
        want(id, op);
        for (InstructionId transfer : transfers) want(id, transfer);
        transfers.clear();
        op = id;
      }
    }
  }
  void want(InstructionId waiter, InstructionId on, std::uint32_t steps_back = 0) {
    if (waiter != no_id && on != no_id && (waiter != on || steps_back > 0))
      wanted_.push_back({waiter, {on, steps_back}});
  }

  const Draft& draft_;
  Plan& plan_;
  std::vector<WantedWait> wanted_;
  std::array<InstructionId, lane_roles> first_{};  // each lane's first instruction
  InstructionId last_update_ = no_id, last_load_ = no_id;
};

AddWaits waits_of(const PolicyMember& member) {
  if (member.waits == ExtraWaits{}) return {};
  return [waits = member.waits](const Draft& draft, Plan& plan) { WaitAdder(draft, plan).add(waits); };
}

Plan named_plan(const PolicyMember& member, const Draft& draft) {
  Plan plan = complete(*member.problem, draft, waits_of(member));
  plan.policy = to_string(member.policy);
  return plan;
}

// One row for each policy, in the order of the enumeration.
struct Row {
  Policy policy;
  std::string_view name;
  void (*add)(PolicyProblems&, std::vector<PolicyMember>&);  // null: the policy emulates no system
};
constexpr std::array rows{Row{Policy::automatic, "auto", nullptr},
                          Row{Policy::none, "none", nullptr},
                          Row{Policy::zero_offload, "zero-offload", add_zero_offload},
                          Row{Policy::zero_infinity, "zero-infinity", add_zero_infinity},
                          Row{Policy::gemini_cpu, "gemini-cpu", add_gemini_cpu},
                          Row{Policy::layer_stream, "layer-stream", add_layer_stream},
                          Row{Policy::checkpoint, "checkpoint", add_checkpoint},
                          Row{Policy::fsdp2, "fsdp2", add_fsdp2}};
static_assert(std::equal(rows.begin(), rows.end(), every_policy.begin(), every_policy.end(),
                         [](const Row& row, Policy policy) { return row.policy == policy; }));

}  // namespace

std::string_view to_string(Policy policy) { return rows.at(static_cast<std::size_t>(policy)).name; }

std::optional<Policy> policy_from(std::string_view name) {
  const auto* found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
  return found == rows.end() ? std::nullopt : std::optional(found->policy);
}

bool is_emulated(Policy policy) { return rows.at(static_cast<std::size_t>(policy)).add != nullptr; }

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
  if (is_emulated(policy)) rows.at(static_cast<std::size_t>(policy)).add(problems, members);
  for (PolicyMember& member : members) member.policy = policy;
  return members;
}

std::vector<PolicyMember> all_policy_members(PolicyProblems& problems) {
  std::vector<PolicyMember> members;
  for (Policy policy : every_policy) {
    for (PolicyMember& member : policy_members(policy, problems)) {
      PolicyMember freed = member;
      freed.waits = {};
      if (member.waits != ExtraWaits{}) members.push_back(freed);
      freed.choices.held_all_step = false;
      if (member.choices.held_all_step) members.push_back(freed);
      members.push_back(std::move(member));
    }
  }
  return members;
}

Sketch policy_sketch(const PolicyMember& member) {
  return Sketcher(*member.problem, member.choices).ahead(member.distance);
}

double policy_least_seconds(const PolicyMember& member, const Draft& draft) {
  return least_seconds(*member.problem, draft, waits_of(member));
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
