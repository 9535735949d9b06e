// Instructions pass: from a scheduled draft with offsets to the plan's instructions and their waits.
//
// The list is ordered so that every wait points backwards. Waits come from what instructions touch:
// a value and its transfer, arena bytes and the lifetime that had them before, host memory and the
// update of the step before. Those that lane order, other waits or the gate imply are left out
// (vector clocks over the lanes: Fidge, "Timestamps in Message-Passing Systems").
#pragma once

#include "offload/plan/lifetimes.h"

namespace stowage {

// What an instruction that first touches bytes waits for.
enum class ByteWaits : std::uint8_t {
  none,        // nothing: a step that is never slower than the real one where lanes do not slow each other
  by_amount,   // the last uses of whatever left so many bytes first, as if any bytes could be joined
  by_address,  // the last uses of whatever had the bytes before
};

// Fills instructions, gate, and each lifetime's `end`. `plan.lifetimes` holds the draft's lifetimes in the
// same order, with offsets if waits go by address. Other waits are for estimates of time: there instructions
// do not say what they use.
void make_instructions(const Graph& graph, const BucketLayout& layout, const Draft& draft,
                       ByteWaits byte_waits, Plan& plan);

}  // namespace stowage
