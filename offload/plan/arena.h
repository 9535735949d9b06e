// Placement pass: offsets for a draft's lifetimes within a given number of bytes.
#pragma once

#include <optional>

#include "offload/plan/candidate.h"

namespace stowage {

// The plan of this draft where its lifetimes find places within `capacity`: residents at the bottom, above
// them what place() (placement.h) finds, or else a branch-and-bound search. Places decide which instructions
// wait for each other, so they change the plan's time.
std::optional<Plan> placed_within(const Problem& problem, const Draft& draft, Bytes capacity,
                                  const PlannerSettings& settings);

// The plan of this draft with the lowest arena found, whatever its time. Depends on no rate.
Plan placed_low(const Problem& problem, const Draft& draft);

}  // namespace stowage
