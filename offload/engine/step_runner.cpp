#include "offload/engine/step_runner.h"

namespace stowage {

void StepRunner::forget(Parity parity) {
  for (BoundInstruction& bound : bound_) bound.work[parity].begun = bound.work[parity].done = false;
}

void StepRunner::enqueue(InstructionId first, InstructionId last, Parity parity, bool step_before) {
  for (InstructionId id = first; id < last; ++id) enqueue_one(id, parity, step_before);
}

void StepRunner::enqueue_one(InstructionId id, Parity parity, bool step_before) {
  current_ = id;
  const Instruction& instruction = plan_.instructions[id];
  const LaneId lane = lanes_[instruction.lane];
  for (const Wait& wait : instruction.waits) {
    if (wait.steps_back == 0)
      device_.wait(lane, events_.end(parity, wait.instruction));
    else if (step_before)
      device_.wait(lane, events_.end(1 - parity, wait.instruction));
  }
  // A lifetime takes over all its bytes, so that the device can check that the bytes' previous owner is done.
  for (const DeviceRange& range : bound_[id].begun) device_.discard(lane, range.address, range.bytes);
  if (events_.records_begin(id)) device_.record(events_.begin(parity, id), lane);
  BoundInstruction& bound = bound_[id];
  if (bound.joint)
    device_.launch(lane, {bound.name, &JointWork::run, &bound.joint->work[parity], bound.joint->accesses,
                          bound.joint->seconds});
  else if (!bound.is_enqueued_before)
    enqueue_work(id, parity);
  if (follower_ != nullptr) follower_->follow(id);
  // The discard must come before the end event, or an instruction that waits for the bytes could meet the
  // discard later.
  for (const DeviceRange& range : bound_[id].ended) device_.discard(lane, range.address, range.bytes);
  if (events_.records_end(id)) device_.record(events_.end(parity, id), lane);
}

void StepRunner::enqueue_work(InstructionId id, Parity parity) {
  const Instruction& instruction = plan_.instructions[id];
  const LaneId lane = lanes_[instruction.lane];
  BoundInstruction& bound = bound_[id];
  switch (instruction.kind) {
    case InstructionKind::prefetch:
      for (const Moved& part : bound.moved)
        device_.copy(lane, part.device, part.host, part.bytes, bound.name);
      break;
    case InstructionKind::offload:
      for (const Moved& part : bound.moved)
        device_.copy(lane, part.host, part.device, part.bytes, bound.name);
      break;
    case InstructionKind::launch:
    case InstructionKind::recompute:
    case InstructionKind::gate:
    case InstructionKind::commit:
    case InstructionKind::speculate:
      if (bound.is_collective) return enqueue_collective(lane, bound);
      device_.launch(lane, {bound.name, &Work::run, &bound.work[parity], bound.accesses, bound.seconds});
      break;
  }
}

void StepRunner::enqueue_collective(LaneId lane, const BoundInstruction& bound) {
  const Operand &from = bound.reads[0], &to = bound.writes[0];
  received_bytes_ += bound.work[0].op->cost.peer_bytes;
  if (bound.work[0].op->kernel == "gather")
    return communicator_->all_gather(lane, from.data, to.data, from.tensor->bytes(), to.tensor->bytes());
  const Bytes share = to.tensor->bytes() / static_cast<Bytes>(communicator_->size());
  communicator_->exchange(lane, from.data, to.data, share, from.tensor->bytes());
}

}  // namespace stowage
