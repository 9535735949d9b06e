// Tighten pass: an arena close to its live bytes, at the same step time.
//
// Large items of several sizes leave bytes between them that no item fits into. So they are placed anew in
// the order of time (src/placement/time_beam.h), under heights from the live bytes upwards. And lifetimes of
// prefetches begin when the schedule means to start them, though their bytes lie idle before: these begin as
// early as their bytes are free, in the same order on the link. No transfer moves by that, for a prefetch
// waits for its bytes and for no position.
#pragma once

#include <optional>

#include "offload/plan/candidate.h"

namespace stowage {

// What an arena may have above its live bytes: a hundredth.
constexpr bool is_tight(const Plan& plan) {
  return plan.device_peak_bytes - plan.live_peak_bytes <= plan.live_peak_bytes / 100;
}

// A tight plan may be so much of a step slower, for other places part or join transfers that slow each other.
inline constexpr double tightening_change = 2e-3;
// Where few large items share the memory a tight plan may be faster: what ends together leaves its bytes
// together, to what then begins earlier. So much it may gain.
inline constexpr double tightening_gain = 0.05;

// `plan` is not tight. The first tight plan found of the same draft, at most so much faster or slower than
// `plan`, of at most `most` bytes: its arena is about its live bytes. If none is found, `thoroughly`: one
// about as fast as `plan` that fills more bytes by what begins early, up to its arena; or else one no slower,
// of more. So where `plan` fits the first fits too, and more memory makes neither slower.
std::optional<Plan> tightened(const Problem& problem, const Draft& draft, const Plan& plan, Bytes most,
                              bool thoroughly);

// The first thing that is tried for it alone.
std::optional<Plan> placed_tight(const Problem& problem, const Draft& draft);

// The plan of this draft with the lowest arena found, whatever its time. Depends on no rate.
Plan complete_low(const Problem& problem, const Draft& draft);

}  // namespace stowage
