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

// Other places part or join transfers that slow each other: a tight plan may be so much of a step slower, or
// faster.
inline constexpr double tightening_change = 2e-3;
// Of all plans that are so near to the best a tight one is looked for; of many lifetimes of fewer, for it
// takes longer.
inline constexpr std::size_t most_searched = 3'500;
constexpr double tightening_gain(std::size_t lifetimes) { return lifetimes <= most_searched ? 1e-3 : 1e-4; }

// The first tight plan found of the same draft, about as fast as `plan` and of no more than its arena; or
// else one no slower, of at most `most` bytes. So where `plan` fits the first fits too, and more memory makes
// neither slower.
std::optional<Plan> tightened(const Problem& problem, const Draft& draft, const Plan& plan, Bytes most);

// The plan of this draft with the lowest arena found, whatever its time. Depends on no rate.
Plan complete_low(const Problem& problem, const Draft& draft);

}  // namespace stowage
