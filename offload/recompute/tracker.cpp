#include "offload/recompute/tracker.h"

#include <algorithm>

namespace stowage {
namespace {

bool among(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::string_view to_string(ActivationState state) {
  switch (state) {
    case ActivationState::none:
      return "not made yet";
    case ActivationState::made:
      return "as it was made";
    case ActivationState::rebuilt:
      return "rebuilt";
    case ActivationState::fetched:
      return "back from the host";
    case ActivationState::on_host:
      return "on the host";
    case ActivationState::dropped:
      return "dropped";
  }
  return "?";
}

RecomputeTracker::RecomputeTracker(const Graph& graph, const Plan& plan)
    : graph_(graph), plan_(plan), ops_(graph.ops.size()) {
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind != InstructionKind::recompute || !ops_[instruction.op].expected.empty()) continue;
    const std::vector<TensorId>& writes = graph.op(instruction.op).writes;
    ReplayedOp& op = ops_[instruction.op];
    op.expected.resize(writes.size());
    for (std::uint32_t i = 0; i < writes.size(); ++i)
      if (graph.tensor(writes[i]).kind != TensorKind::workspace) op.writes.push_back(i);
  }
}

std::span<const std::uint32_t> RecomputeTracker::compared_writes(InstructionId id) const {
  const Instruction& instruction = plan_.instructions[id];
  const bool forward =
      instruction.kind == InstructionKind::launch || instruction.kind == InstructionKind::recompute;
  if (!forward) return {};
  return ops_[instruction.op].writes;
}

RecomputeTracker::Comparison RecomputeTracker::compare(InstructionId id, std::uint32_t write,
                                                       std::uint64_t hash) {
  const Instruction& instruction = plan_.instructions[id];
  std::uint64_t& expected = ops_[instruction.op].expected[write];
  if (instruction.kind == InstructionKind::launch) expected = hash;
  return {expected == hash, expected};
}

// Follows one activation through the plan.
class RecomputeTracker::Walk {
 public:
  Walk(const Graph& graph, const Plan& plan, TensorId tensor) : graph_(graph), plan_(plan), tensor_(tensor) {
    for (BucketId bucket = 0; bucket < plan.buckets.size(); ++bucket)
      for (const BucketTensor& member : plan.buckets[bucket].tensors)
        if (member.tensor == tensor) bucket_ = bucket, offset_ = member.offset;
  }

  void pass(InstructionId id) {
    const Instruction& instruction = plan_.instructions[id];
    if (instruction.lifetime != no_id)
      pass_transfer(instruction);
    else
      pass_op(id);
    for (const Lifetime& lifetime : plan_.lifetimes)
      if (lifetime.bucket == bucket_ && lifetime.end == id && !is_copy(lifetime) && on_device())
        state_ = has_host_copy_ ? ActivationState::on_host : ActivationState::dropped;
  }
  ActivationState state() const { return state_; }

 private:
  bool on_device() const {
    return state_ == ActivationState::made || state_ == ActivationState::rebuilt ||
           state_ == ActivationState::fetched;
  }
  // True for a lifetime that only one replay touches.
  bool is_copy(const Lifetime& lifetime) const {
    if (lifetime.end == no_id || plan_.instructions[lifetime.end].kind != InstructionKind::recompute)
      return false;
    const auto id = static_cast<LifetimeId>(&lifetime - plan_.lifetimes.data());
    return std::none_of(plan_.instructions.begin(), plan_.instructions.end(), [&](const Instruction& other) {
      return &other != &plan_.instructions[lifetime.end] && (other.lifetime == id || among(other.uses, id));
    });
  }
  void pass_transfer(const Instruction& transfer) {
    if (plan_.lifetimes[transfer.lifetime].bucket != bucket_) return;
    if (transfer.kind == InstructionKind::prefetch && has_host_copy_) state_ = ActivationState::fetched;
    if (transfer.kind == InstructionKind::offload) has_host_copy_ = has_host_copy_ || on_device();
  }
  void pass_op(InstructionId id) {
    const Instruction& instruction = plan_.instructions[id];
    for (LifetimeId use : instruction.uses)
      if (plan_.lifetimes[use].bucket == bucket_ && is_copy(plan_.lifetimes[use])) return;
    for (TensorId written : graph_.op(instruction.op).writes) {
      if (written == tensor_) {
        state_ =
            instruction.kind == InstructionKind::recompute ? ActivationState::rebuilt : ActivationState::made;
        has_host_copy_ = false;
      } else if (shares_bytes(written) && on_device()) {
        state_ = ActivationState::dropped;
      }
    }
  }
  // True for tensors in the same bucket at the same offset: an alias joins them.
  bool shares_bytes(TensorId other) const {
    if (bucket_ == no_id) return false;
    const std::vector<BucketTensor>& members = plan_.buckets[bucket_].tensors;
    return std::any_of(members.begin(), members.end(), [&](const BucketTensor& member) {
      return member.tensor == other && member.offset == offset_;
    });
  }

  const Graph& graph_;
  const Plan& plan_;
  const TensorId tensor_;
  BucketId bucket_ = no_id;
  Bytes offset_ = 0;
  ActivationState state_ = ActivationState::none;
  bool has_host_copy_ = false;
};

ActivationState RecomputeTracker::state(TensorId activation) const {
  Walk walk(graph_, plan_, activation);
  for (InstructionId id = 0; id < next_; ++id) walk.pass(id);
  return walk.state();
}

}  // namespace stowage
