// Placement pass: offsets for a draft's lifetimes within a given number of bytes.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "offload/plan/problem/problem.h"
#include "offload/plan/problem/settings.h"
#include "offload/plan/schedule/lifetimes.h"
#include "stowage/placement.h"

namespace stowage {

// Remembers the places found for sets of up to a few hundred items, because different choices often lead to
// the same lifetimes. One object serves all drafts and capacities.
class KnownPlaces {
 public:
  // Returns the offsets of place() (placement.h).
  const std::vector<Bytes>& low(const std::vector<PlacementItem>& items);
  // Returns offsets found by a branch-and-bound search, nullopt if it finds none.
  const std::optional<std::vector<Bytes>>& within(const std::vector<PlacementItem>& items, Bytes capacity);

 private:
  struct Places {
    std::optional<std::vector<Bytes>> low{};
    std::map<Bytes, std::optional<std::vector<Bytes>>> within{};  // places by capacity
  };
  struct IsBefore {
    bool operator()(const std::vector<PlacementItem>& a, const std::vector<PlacementItem>& b) const;
  };
  std::map<std::vector<PlacementItem>, Places, IsBefore> places_;
};

// Returns the draft's plan, nullopt if no places within `capacity` are found. Residents lie at the
// bottom. Above them lifetimes have the places that place() (placement.h) finds or, if these do not fit,
// a branch-and-bound search (if `settings` has it). Then places_for_transfers() (transfer_places.h)
// moves the lifetimes of transfers. Places decide which instructions wait for each other, so they change
// the plan's time.
std::optional<Plan> placed_within(const Problem& problem, const Draft& draft, Bytes capacity,
                                  const PlannerSettings& settings, KnownPlaces& known);
std::optional<Plan> placed_within(const Problem& problem, const Draft& draft, Bytes capacity,
                                  const PlannerSettings& settings);

// Returns the draft's plan with the lowest arena found, whatever its time. The places depend on no rate of
// the machine.
Plan placed_low(const Problem& problem, const Draft& draft);

}  // namespace stowage
