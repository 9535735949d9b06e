#include "offload/engine/binding.h"

#include <fmt/format.h>

#include "src/graph/cost.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Binds one instruction; holds what the steps of that share.
class Binder {
 public:
  Binder(const BindingInput& input, const Instruction& instruction)
      : input_(input), instruction_(instruction) {}

  BoundInstruction bind() {
    const bool transfer =
        instruction_.kind == InstructionKind::prefetch || instruction_.kind == InstructionKind::offload;
    transfer ? bind_transfer() : bind_op();
    return std::move(bound_);
  }

 private:
  void bind_transfer() {
    const Lifetime& lifetime = input_.plan.lifetimes[instruction_.lifetime];
    const Bucket& bucket = input_.plan.buckets[lifetime.bucket];
    bound_.label = bucket.name;
    bound_.name = fmt::format("{} {}", to_string(instruction_.kind), bucket.name);
    bound_.bytes = bucket.bytes;
    bound_.device = input_.arena.at(lifetime.offset, bucket.bytes);
    bound_.host = input_.host[lifetime.bucket];
  }

  void bind_op() {
    const Op& op = input_.graph.op(instruction_.op);
    const bool on_host = instruction_.kind == InstructionKind::host_step;
    bound_.label = op.name;
    bound_.name = instruction_.kind == InstructionKind::recompute ? "recompute " + op.name : op.name;
    bound_.seconds = on_host ? host_seconds(op, input_.machine) : op_seconds(op, input_.machine);
    for (TensorId id : op.reads) bound_.reads.push_back(operand(id, AccessMode::read));
    for (TensorId id : op.writes) bound_.writes.push_back(operand(id, AccessMode::write));
    const Kernel kernel = input_.kernels.find(op);
    for (std::size_t parity = 0; parity < bound_.work.size(); ++parity)
      bound_.work[parity] = {kernel, &op, bound_.reads, bound_.writes, &input_.steps[parity], false};
  }

  Operand operand(TensorId id, AccessMode mode) {
    const Tensor& tensor = input_.graph.tensor(id);
    const TensorPlace place = input_.places[id];
    const bool on_host = instruction_.kind == InstructionKind::host_step;
    std::byte* base = on_host ? input_.host[place.bucket] : device_base(place.bucket);
    if (base == nullptr)
      throw InvalidInput(fmt::format("the plan gives op '{}' no place for '{}' on the {}: plan again",
                                     bound_.label, tensor.name, on_host ? "host" : "device"));
    std::byte* data = base + place.offset;
    if (!on_host || input_.plan.buckets[place.bucket].pinned)
      bound_.accesses.push_back({data, tensor.bytes(), mode});
    bound_.bytes += tensor.bytes();
    return {data, &tensor};
  }

  std::byte* device_base(BucketId bucket) const {
    for (LifetimeId id : instruction_.uses) {
      const Lifetime& lifetime = input_.plan.lifetimes[id];
      if (lifetime.bucket == bucket) return input_.arena.at(lifetime.offset, input_.plan.buckets[bucket].bytes);
    }
    return nullptr;
  }

  const BindingInput& input_;
  const Instruction& instruction_;
  BoundInstruction bound_;
};

}  // namespace

void Work::run(void* work) {
  Work& self = *static_cast<Work*>(work);
  self.kernel({self.op, self.reads, self.writes, *self.step, nullptr});
  self.done = true;
}

std::vector<TensorPlace> tensor_places(const Graph& graph, const Plan& plan) {
  std::vector<TensorPlace> places(graph.tensors.size());
  for (BucketId bucket = 0; bucket < plan.buckets.size(); ++bucket)
    for (const BucketTensor& member : plan.buckets[bucket].tensors) places[member.tensor] = {bucket, member.offset};
  return places;
}

std::vector<BoundInstruction> bind(const BindingInput& input) {
  const Plan& plan = input.plan;
  std::vector<BoundInstruction> bound;
  for (const Instruction& instruction : plan.instructions) bound.push_back(Binder(input, instruction).bind());
  for (const Lifetime& lifetime : plan.lifetimes) {
    // Bytes that an update reads stay as they are until it is known to be complete: a failed one is
    // made up for from them.
    if (lifetime.end == no_id || lifetime.end > plan.gate) continue;
    const Bytes bytes = plan.buckets[lifetime.bucket].bytes;
    bound[lifetime.end].ended.push_back({input.arena.at(lifetime.offset, bytes), bytes});
  }
  return bound;
}

}  // namespace stowage
