// Placement pass: offsets for a draft's lifetimes within a given number of bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "offload/plan/candidate.h"

namespace stowage {

// The faster of the plans of this draft that fit into `capacity`: where greedy orders put its lifetimes, and
// where a beam search in the order of time does (src/placement/time_beam.h). Places decide which instructions
// wait for each other. Nothing where neither fits, nor the branch-and-bound search that is tried then.
// Thorough: with a wider beam too, several times.
enum class Effort : std::uint8_t { brief, thorough };
std::optional<Plan> placed_within(const Problem& problem, const Draft& draft, Bytes capacity,
                                  const PlannerSettings& settings, Effort effort = Effort::brief);

// The plan of this draft with the lowest arena found, whatever its time. Depends on no rate.
Plan placed_low(const Problem& problem, const Draft& draft);

}  // namespace stowage
