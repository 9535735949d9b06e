#include "offload/engine/binding.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/graph/cost.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Binds one instruction.
class Binder {
 public:
  // `speculation`: the instruction that speculates the same op, or null.
  Binder(const BindingInput& input, InstructionId id, const Instruction* speculation)
      : input_(input),
        instruction_(input.plan.instructions[id]),
        is_early_(runs_on_host(instruction_) && id < input.plan.gate),
        speculation_(speculation) {}

  BoundInstruction bind() {
    const bool transfer = is_transfer(instruction_.kind);
    transfer ? bind_transfer() : bind_op();
    return std::move(bound_);
  }

 private:
  void bind_transfer() {
    const Lifetime& lifetime = input_.plan.lifetimes[instruction_.lifetime];
    const Bucket& bucket = input_.plan.buckets[lifetime.bucket];
    const ByteRange moved = moved_bytes(input_.plan, instruction_);
    bound_.label = bucket.name;
    bound_.name = fmt::format("{} {}", to_string(instruction_.kind), bucket.name);
    bound_.bytes = moved.bytes();
    if (is_lent(bucket))
      bound_.moved = lent_parts(bucket, input_.arena.at(lifetime.offset, bucket.bytes), input_.lent);
    else
      bound_.moved = {{input_.arena.at(lifetime.offset + moved.begin, moved.bytes()),
                       host_at(lifetime.bucket, moved), moved.bytes()}};
  }
  bool is_lent(const Bucket& bucket) const {
    return !input_.lent.empty() && bucket.kind == TensorKind::parameter;
  }

  void bind_op() {
    const Op& op = input_.graph.op(instruction_.op);
    const bool on_host = runs_on_host(instruction_);
    bound_.label = op.name;
    bound_.name = is_named_by_kind() ? fmt::format("{} {}", to_string(instruction_.kind), op.name) : op.name;
    bound_.seconds = on_host ? seconds_on_host(op) : op_seconds(op, input_.machine);
    for (TensorId id : op.reads) bound_.reads.push_back(operand(id, AccessMode::read));
    for (TensorId id : op.writes) bound_.writes.push_back(operand(id, AccessMode::write));
    bound_.is_collective = is_collective(op);
    const Kernel kernel = bound_.is_collective ? nothing : kernel_of(op);
    void* const stream = input_.streams.at(index_of(instruction_.lane));
    for (std::size_t parity = 0; parity < bound_.work.size(); ++parity)
      bound_.work[parity] = {kernel, &op,     bound_.reads, bound_.writes, &input_.steps[parity],
                             stream, record()};
  }
  bool is_named_by_kind() const {
    return instruction_.kind == InstructionKind::recompute || instruction_.kind == InstructionKind::speculate;
  }

  // Returns the modelled time of an update that is not clipped.
  double seconds_on_host(const Op& op) const {
    if (!is_speculated(op))
      return instruction_.kind == InstructionKind::speculate ? 0 : host_seconds(op, input_.machine);
    return instruction_.kind == InstructionKind::speculate
               ? undoable_seconds(input_.graph, op, input_.machine)
               : 0;
  }
  // Without kernels for all parts of a speculation, the update is made behind the gate.
  bool is_speculated(const Op& op) const {
    const auto has = [&](const char* part) {
      return input_.host_kernels.find_if_present(op.kernel + part) != nullptr;
    };
    return speculation_ != nullptr && runs_on_host(instruction_) && has(".speculate") && has(".finish") &&
           has(".undo");
  }
  Kernel kernel_of(const Op& op) {
    const LaunchTable& table = runs_on_host(instruction_) ? input_.host_kernels : input_.kernels;
    if (is_early_ && instruction_.kind == InstructionKind::commit) return unclipped_kernel_of(op);
    if (!is_speculated(op)) return instruction_.kind == InstructionKind::speculate ? nothing : table.find(op);
    if (instruction_.kind == InstructionKind::commit) return table.find_if_present(op.kernel + ".finish");
    bound_.undo = table.find_if_present(op.kernel + ".undo");
    return table.find_if_present(op.kernel + ".speculate");
  }
  Kernel unclipped_kernel_of(const Op& op) const {
    const Kernel kernel = input_.host_kernels.find_if_present(op.kernel + ".unclipped");
    if (kernel != nullptr) return kernel;
    throw InvalidInput(
        fmt::format("op '{}' is updated before the gate, but the host's launch table has no kernel "
                    "'{}.unclipped': add it, or plan without the optimizer in backward",
                    op.name, op.kernel));
  }
  static void nothing(const LaunchArguments& /*arguments*/) {}
  std::span<std::byte> record() const {
    if (speculation_ == nullptr) return {};
    return input_.undo.subspan(speculation_->part.begin, speculation_->part.bytes());
  }

  // An update before the gate does not look at the clip scale.
  bool touches(TensorId id) const { return !is_early_ || id != input_.graph.clip; }
  Operand operand(TensorId id, AccessMode mode) {
    const Tensor& tensor = input_.graph.tensor(id);
    const TensorPlace place = input_.places[id];
    const bool on_host = runs_on_host(instruction_);
    std::byte* const lent = input_.lent.empty() || on_host ? nullptr : input_.lent[id].device;
    std::byte* const data = lent != nullptr ? lent
                            : on_host ? host_at(place.bucket, {place.offset, place.offset + tensor.bytes()})
                                      : device_at(place.bucket, place.offset);
    if (data == nullptr)
      throw InvalidInput(fmt::format("the plan gives op '{}' no place for '{}' on the {}: plan again",
                                     bound_.label, tensor.name, on_host ? "host" : "device"));
    // Buckets that are not page-locked are touched by host steps alone, in their lane's order, and need no
    // check.
    if (touches(id) && (!on_host || input_.plan.buckets[place.bucket].pinned()))
      add_accesses({data, tensor.bytes(), mode});
    bound_.bytes += tensor.bytes();
    return {data, &tensor};
  }

  // A sum of rows reads only the counted elements of each row.
  void add_accesses(const Access& whole) {
    const Op& op = input_.graph.op(instruction_.op);
    const auto positive = [&](const char* attribute) -> Bytes {
      const auto found = op.attributes.find(attribute);
      const auto* value = found == op.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
      return value == nullptr || *value < 0 ? 0 : static_cast<Bytes>(*value);
    };
    const Bytes rows = op.kernel == "tree_sum" ? positive("rows") : 0;
    constexpr Bytes most_rows = 1024;  // the kernel's limit
    if (whole.mode == AccessMode::write || rows == 0 || rows > most_rows || !op.attributes.contains("count"))
      return bound_.accesses.push_back(whole);
    const Bytes row_bytes = whole.bytes / rows;
    const Bytes used =
        std::min(row_bytes, positive("count") * size_of(input_.graph.tensor(op.reads[0]).type));
    for (Bytes row = 0; row < rows && used > 0; ++row)
      bound_.accesses.push_back({static_cast<std::byte*>(whole.address) + row * row_bytes, used, whole.mode});
  }

  // Returns null for a bucket without a place on the host.
  std::byte* host_at(BucketId id, const ByteRange& range) const {
    std::byte* const base = input_.host[id];
    const Bucket& bucket = input_.plan.buckets[id];
    if (base == nullptr || !bucket.in_ring()) return base == nullptr ? nullptr : base + range.begin;
    if (!bucket.is_whole_in_ring(range))
      throw InvalidInput(
          fmt::format("'{}' touches bytes {} to {} of bucket '{}', of which the gradient ring has not all at "
                      "once: plan again",
                      bound_.label, range.begin, range.end, bucket.name));
    return base + bucket.byte_in_ring(range.begin);
  }

  // Returns null if the instruction uses no lifetime of the bucket.
  std::byte* device_at(BucketId bucket, Bytes offset) const {
    for (LifetimeId id : instruction_.uses) {
      const Lifetime& lifetime = input_.plan.lifetimes[id];
      if (lifetime.bucket == bucket)
        return input_.arena.at(lifetime.offset, input_.plan.buckets[bucket].bytes) + offset;
    }
    return nullptr;
  }

  const BindingInput& input_;
  const Instruction& instruction_;
  const bool is_early_;  // the instruction is an update before the gate
  const Instruction* speculation_;
  BoundInstruction bound_;
};

// Returns the first launch that uses the lifetime; no_id if a prefetch fills it, or if it is resident.
InstructionId first_launch(const Plan& plan, LifetimeId lifetime) {
  if (plan.lifetimes[lifetime].end == no_id) return no_id;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (instruction.lifetime == lifetime) return no_id;
    if (std::find(instruction.uses.begin(), instruction.uses.end(), lifetime) != instruction.uses.end())
      return id;
  }
  return no_id;
}

void bind_lifetimes(const BindingInput& input, std::vector<BoundInstruction>& bound) {
  const Plan& plan = input.plan;
  for (LifetimeId id = 0; id < plan.lifetimes.size(); ++id) {
    const Lifetime& lifetime = plan.lifetimes[id];
    if (lifetime.end == no_id) continue;
    const Bucket& bucket = plan.buckets[lifetime.bucket];
    const DeviceRange range{input.arena.at(lifetime.offset, bucket.bytes), bucket.bytes};
    bound[lifetime.end].ended.push_back(range);
    const InstructionId first = bucket.tensors.size() > 1 ? first_launch(plan, id) : no_id;
    if (first != no_id) bound[first].begun.push_back(range);
  }
}

void bind_joint_updates(const BindingInput& input, std::vector<BoundInstruction>& bound) {
  for (const std::vector<InstructionId>& group : joint_updates(input.graph, input.plan, input.kernels)) {
    JointLaunch joint;
    for (std::size_t parity = 0; parity < joint.work.size(); ++parity) {
      JointWork& work = joint.work[parity];
      work.kernel = input.kernels.find_joint(bound[group.front()].work[parity].op->kernel);
      work.arguments.reserve(group.size());
      for (const InstructionId id : group) work.works.push_back(&bound[id].work[parity]);
    }
    for (const InstructionId id : group) {
      joint.accesses.insert(joint.accesses.end(), bound[id].accesses.begin(), bound[id].accesses.end());
      joint.seconds += bound[id].seconds;
      bound[id].is_enqueued_before = id != group.front();
    }
    bound[group.front()].joint = std::make_unique<JointLaunch>(std::move(joint));
  }
}

}  // namespace

void Work::run(void* work) {
  Work& self = *static_cast<Work*>(work);
  self.begun = true;
  self.kernel(self.arguments());
  self.done = true;
}

std::vector<TensorPlace> tensor_places(const Graph& graph, const Plan& plan) {
  std::vector<TensorPlace> places(graph.tensors.size());
  for (BucketId bucket = 0; bucket < plan.buckets.size(); ++bucket)
    for (const BucketTensor& member : plan.buckets[bucket].tensors)
      places[member.tensor] = {bucket, member.offset};
  return places;
}

std::vector<BoundInstruction> bind(const BindingInput& input) {
  const Plan& plan = input.plan;
  std::vector<BoundInstruction> bound;
  const std::vector<InstructionId> speculated = speculations(plan, input.graph.ops.size());
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    const bool of_update = instruction.op != no_id && speculated[instruction.op] != no_id;
    const Instruction* speculation = of_update ? &plan.instructions[speculated[instruction.op]] : nullptr;
    bound.push_back(Binder(input, id, speculation).bind());
  }
  bind_lifetimes(input, bound);
  bind_joint_updates(input, bound);
  return bound;
}

std::vector<InstructionId> collectives_of(std::span<const BoundInstruction> bound) {
  std::vector<InstructionId> collectives;
  for (InstructionId id = 0; id < bound.size(); ++id)
    if (bound[id].is_collective) collectives.push_back(id);
  return collectives;
}

}  // namespace stowage
