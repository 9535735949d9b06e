// Slots: the instructions of a plan in the plan's order, without their waits.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "offload/plan/schedule/gradient_ring.h"
#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// An instruction of a plan, without its waits, and its place in the plan's order.
struct Slot {
  // Places at one position, in order: its prefetches, its op, and then the instructions behind the op.
  enum class Place : std::uint8_t { prefetch, compute, offload, early, gate, host };
  Position position = 0;
  Place place = Place::compute;
  std::pair<Position, Position> order{};  // order within the place
  InstructionKind kind = InstructionKind::launch;
  LaneRole lane = LaneRole::compute;
  OpId op = no_id;
  LifetimeId lifetime = no_id;
  ByteRange part{};
};

// Returns the slots in the plan's order. The undo records of speculated updates stand one behind the other,
// from byte 0 on. `ring`: the gradient ring of the draft.
std::vector<Slot> make_slots(const Graph& graph, const BucketLayout& layout, const Draft& draft,
                             const GradientRing& ring);

// Returns the bucket of the parameter that the update op writes. If it writes none, returns the bucket of the
// first tensor that it writes.
BucketId parameters_of(const Graph& graph, const BucketLayout& layout, OpId update);

}  // namespace stowage
