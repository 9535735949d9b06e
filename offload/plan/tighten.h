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
// together, to what then begins earlier. Where it would have to gain more to be kept, none is looked for.
inline constexpr double tightening_gain = 0.05;
// Where the fastest plan is not tight and no tight one is about as fast: what another may be slower.
inline constexpr double tightening_loss = 0.1;

// How long a tight plan should take.
struct WantedTime {
  double least_seconds = 0;   // one that takes less is not looked at
  double enough_seconds = 0;  // where a placement takes long, no faster one is looked for
};

// The fastest found of tight plans of the same draft, of at most `most` bytes: its arena is about its live
// bytes. At most tightening_change slower than `plan`.
std::optional<Plan> tightened(const Problem& problem, const Draft& draft, const Plan& plan, Bytes most,
                              const WantedTime& wanted);

// The first found where that found none, by what takes longer; at most tightening_change faster than `plan`.
// Of about the live bytes too; or one that fills more bytes by what begins early, up to the arena of `plan`;
// or else one no slower, of more. So where `plan` fits the first fits too, and more memory makes neither
// slower.
std::optional<Plan> tightened_thoroughly(const Problem& problem, const Draft& draft, const Plan& plan,
                                         Bytes most);

// The one of these that takes no search: `plan` with what can begin earlier where it stands.
std::optional<Plan> tightened_in_place(const Problem& problem, const Draft& draft, const Plan& plan,
                                       Bytes most);

// The first thing that is tried for it alone.
std::optional<Plan> placed_tight(const Problem& problem, const Draft& draft);

// The plan of this draft with the lowest arena found, whatever its time. Depends on no rate.
Plan complete_low(const Problem& problem, const Draft& draft);

}  // namespace stowage
