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

// What an instruction that first touches bytes waits for.
enum class ByteWaits : std::uint8_t {
  none,        // nothing: if lanes do not slow each other, the step takes no longer than with waits
  by_amount,   // the last uses of lifetimes that leave enough bytes, the earliest first; no fragmentation
  by_address,  // the last uses of the lifetimes that had these bytes before
};

// `ring`: of the draft. Fills instructions, gate, and each lifetime's `end`. `plan.lifetimes` holds the
// draft's lifetimes in the same order, with offsets if waits go by address. The two other kinds are for
// estimates of time, and leave Instruction::uses empty.
void make_instructions(const Graph& graph, const BucketLayout& layout, const Draft& draft,
                       const GradientRing& ring, ByteWaits byte_waits, Plan& plan);

}  // namespace stowage
