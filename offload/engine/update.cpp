#include "offload/engine/update.h"

#include <algorithm>

namespace stowage {

InstructionId last_update_launch(const Plan& plan) {
  InstructionId last = no_id;
  for (InstructionId id = plan.gate + 1; id < plan.instructions.size(); ++id)
    if (plan.instructions[id].kind == InstructionKind::launch) last = id;
  return last;
}

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
  if (instruction.kind == InstructionKind::host_step) return Work::run(&work);
  runner_.enqueue_work(id, parity);
  device_.synchronise_lane(lanes_[instruction.lane]);
}

// A transfer leaves no mark of its own, but doing it twice is harmless as long as its bytes still
// serve the same lifetime: for ever if it is resident, else until its last reader has run.
bool Update::wanted_again(InstructionId prefetch, Parity parity) const {
  const LifetimeId lifetime = plan_.instructions[prefetch].lifetime;
  if (plan_.lifetimes[lifetime].end == no_id) return true;
  for (InstructionId id = prefetch + 1; id < plan_.instructions.size(); ++id) {
    const auto& uses = plan_.instructions[id].uses;
    if (!bound_[id].work[parity].done && std::find(uses.begin(), uses.end(), lifetime) != uses.end()) return true;
  }
  return false;
}

}  // namespace stowage
