// Instructions pass: from a scheduled draft with offsets to the plan's instructions and their waits.
//
// The list is ordered so that every wait of the same step points backwards. Waits come from what instructions
// touch: a value and its transfer, arena bytes and the lifetime that had them before, host memory and the
// update of the step before. Waits that lane order, other waits or the gate imply are left out (waits.h), by
// vector clocks over the lanes (Fidge, "Timestamps in Message-Passing Systems That Preserve the Partial
// Ordering", 1988).
#pragma once

#include "offload/plan/schedule/gradient_ring.h"
#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// Waits for arena bytes, of the first instruction of a lifetime.
enum class ByteWaits : std::uint8_t {
  none,        // no such waits: if lanes do not slow each other, the step takes no longer than with them
  by_amount,   // waits for the last uses of lifetimes that ended first and free enough bytes together
  by_address,  // waits for the last uses of the previous owners of the lifetime's bytes
};

// Sets the plan's instructions, gate, undo_bytes and optimizer_in_backward, and each lifetime's `end`.
// Requires the draft's `ring`, and in `plan.lifetimes` the draft's lifetimes in the same order, with offsets
// for ByteWaits::by_address. ByteWaits::none and by_amount serve estimates of time and leave
// Instruction::uses empty.
void make_instructions(const Graph& graph, const BucketLayout& layout, const Draft& draft,
                       const GradientRing& ring, ByteWaits byte_waits, Plan& plan);

}  // namespace stowage
