// Slots: which instructions a plan has, in the order of the plan; without what they wait for.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "offload/plan/schedule/gradient_ring.h"
#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// An instruction of a plan, without its waits, and its place in the plan's order.
struct Slot {
  // At one position: transfers between positions.
  enum class Place : std::uint8_t { prefetch, compute, offload, early, gate, host };
  Position position = 0;
  Place place = Place::compute;
  std::pair<Position, Position> order{};  // within the place
  InstructionKind kind = InstructionKind::launch;
  LaneRole lane = LaneRole::compute;
  OpId op = no_id;
  LifetimeId lifetime = no_id;
  ByteRange part{};
};

// By instruction. Undo records of speculated updates stand behind each other, from 0 on. `ring`: of the
// draft.
std::vector<Slot> make_slots(const Graph& graph, const BucketLayout& layout, const Draft& draft,
                             const GradientRing& ring);

// The bucket of the parameter that the update op writes; of one that writes none, of the first that it does.
BucketId parameters_of(const Graph& graph, const BucketLayout& layout, OpId update);

}  // namespace stowage
