// Instructions pass: from a scheduled draft with offsets to the plan's instructions and their waits.
//
// The list is ordered so that every wait points backwards. Waits come from what instructions touch:
// a value and its transfer, arena bytes and the lifetime that had them before, host memory and the
// update of the step before. Those that lane order, other waits or the gate imply are left out
// (vector clocks over the lanes: Fidge, "Timestamps in Message-Passing Systems").
#pragma once

#include "offload/plan/lifetimes.h"

namespace stowage {

// Fills instructions, gate, and each lifetime's `end`. `plan.lifetimes` holds the draft's lifetimes
// with offsets, in the same order; with `reuse_waits` off, offsets are ignored and no instruction
// waits for bytes: a step that is never slower than the real one.
void make_instructions(const Graph& graph, const BucketLayout& layout, const Draft& draft, bool reuse_waits,
                       Plan& plan);

}  // namespace stowage
