#include "offload/engine/update.h"

#include <algorithm>

namespace stowage {

bool Update::complete(Parity parity) noexcept {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      complete_once(parity);
      return true;
    } catch (...) {
      if (!lanes_.settle()) return false;
    }
  }
  return false;
}

// An undo record says which part of an update was made. If the update was not begun, the record may still
// belong to the step before, whose commit has failed and needs it.
void Update::undo(Parity parity) {
  for (InstructionId id = 0; id < plan_.gate; ++id) {
    const BoundInstruction& bound = bound_[id];
    const Work& work = bound.work[parity];
    if (bound.undo != nullptr && work.begun) bound.undo(work.arguments());
  }
}

bool Update::made_for_good(Parity parity) const {
  for (InstructionId id = 0; id < plan_.gate; ++id)
    if (plan_.instructions[id].kind == InstructionKind::commit && bound_[id].work[parity].begun) return true;
  return false;
}

void Update::complete_once(Parity parity) {
  for (InstructionId id = plan_.gate + 1; id < plan_.instructions.size(); ++id) complete_one(id, parity);
}

void Update::complete_one(InstructionId id, Parity parity) {
  const Instruction& instruction = plan_.instructions[id];
  Work& work = bound_[id].work[parity];
  if (instruction.kind == InstructionKind::prefetch) {
    if (!wanted_again(id, parity)) return;
  } else if (work.done) {
    return;
  }
  if (runs_on_host(instruction)) return Work::run(&work);
  if (instruction.kind == InstructionKind::commit) reclaim_operands(bound_[id]);
  runner_.enqueue_work(id, parity);
  device_.synchronise_lane(lanes_[instruction.lane]);
}

// The operands still hold the values that they had when the launch failed, because all work after a failure
// is skipped or was never enqueued. But a device that keeps account of its bytes may have seen them discarded
// and given to lifetimes of the next step; written once more, they count as defined again.
void Update::reclaim_operands(const BoundInstruction& launch) {
  std::vector<std::byte> value;
  for (const Access& access : launch.accesses) {
    if (access.mode != AccessMode::read) continue;
    value.resize(access.bytes);
    staging_.download(value, static_cast<std::byte*>(access.address));
    staging_.upload(static_cast<std::byte*>(access.address), value);
  }
}

// A transfer leaves no mark that it was done, but repeating it is harmless as long as its bytes still serve
// the same lifetime: for ever if the lifetime is resident, else until its last reader has run.
bool Update::wanted_again(InstructionId prefetch, Parity parity) const {
  const LifetimeId lifetime = plan_.instructions[prefetch].lifetime;
  if (plan_.lifetimes[lifetime].end == no_id) return true;
  for (InstructionId id = prefetch + 1; id < plan_.instructions.size(); ++id) {
    const auto& uses = plan_.instructions[id].uses;
    if (!bound_[id].work[parity].done && std::find(uses.begin(), uses.end(), lifetime) != uses.end())
      return true;
  }
  return false;
}

}  // namespace stowage
