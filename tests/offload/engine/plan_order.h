// What a plan's waits imply, by walking its unrolled steps: slow and obvious.
#pragma once

#include "stowage/plan.h"

namespace stowage::testing {

// The plan without wait number `wait` of `instruction`.
Plan without_wait(Plan plan, InstructionId instruction, std::size_t wait);

// Whether `wait` still holds in `plan`, which does not have it: by lane order, the other waits, the gate
// rule of plan.h, and what the engine adds to it (the host has the loss before it goes past the gate).
bool implied(const Plan& plan, InstructionId instruction, const Wait& wait, InstructionId loss_offload);

}  // namespace stowage::testing
