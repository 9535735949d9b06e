// Placement pass: offsets for a draft's lifetimes within a given number of bytes.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "offload/plan/problem/problem.h"
#include "offload/plan/schedule/lifetimes.h"
#include "stowage/placement.h"
#include "stowage/planner.h"

namespace stowage {

// Remembers the places that searches have found, for up to a few hundred items: different choices often lead
// to the same lifetimes. One object serves all drafts and capacities.
class KnownPlaces {
 public:
  // Offsets by place() (placement.h).
  const std::vector<Bytes>& low(const std::vector<PlacementItem>& items);
  // Offsets by a branch-and-bound search; none where it finds none.
  const std::optional<std::vector<Bytes>>& within(const std::vector<PlacementItem>& items, Bytes capacity);

 private:
  struct Places {
    std::optional<std::vector<Bytes>> low{};
    std::map<Bytes, std::optional<std::vector<Bytes>>> within{};  // by capacity
  };
  struct IsBefore {
    bool operator()(const std::vector<PlacementItem>& a, const std::vector<PlacementItem>& b) const;
  };
  std::map<std::vector<PlacementItem>, Places, IsBefore> places_;
};

// The plan of this draft where its lifetimes find places within `capacity`: residents at the bottom, above
// them what place() (placement.h) finds, or else a branch-and-bound search; then transfer_places.h moves what
// transfers wait for. Places decide which instructions
// wait for each other, so they change the plan's time.
std::optional<Plan> placed_within(const Problem& problem, const Draft& draft, Bytes capacity,
                                  const PlannerSettings& settings, KnownPlaces& known);
std::optional<Plan> placed_within(const Problem& problem, const Draft& draft, Bytes capacity,
                                  const PlannerSettings& settings);

// The plan of this draft with the lowest arena found, whatever its time. Depends on no rate.
Plan placed_low(const Problem& problem, const Draft& draft);

}  // namespace stowage
