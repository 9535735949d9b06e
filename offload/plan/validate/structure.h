// Checks all that needs no order of events: ids, buckets, lifetimes, and each instruction by itself.
#pragma once

#include <vector>

#include "offload/plan/validate/report.h"

namespace stowage::validation {

// Returns whether `bytes` bytes at `offset` lie within `room` bytes, without overflow.
inline bool fits(Bytes offset, Bytes bytes, Bytes room) { return bytes <= room && offset <= room - bytes; }

// The place of each tensor, by tensor. Complete only if check_buckets found nothing.
struct Places {
  std::vector<BucketId> bucket;
  std::vector<Bytes> offset;  // offset inside the bucket
};

// Checks that every tensor is in exactly one bucket, inside its bytes; that aliases are at one place, slices
// of parameters and gradients where their rows are, and all other tensors apart. Optimizer state that is cut
// is in buckets only by its slices.
Places check_buckets(const Graph& graph, const Plan& plan, Report& report);

// Checks that ids are in range, and that each instruction is on a lane for its kind and has the fields of its
// kind. All checks below may use ids as indices if this check has found nothing.
void check_ids(const Graph& graph, const Plan& plan, Report& report);

// Checks that every lifetime lies inside the arena, at a multiple of the plan's alignment. Requires that
// check_ids has found nothing.
void check_places_in_arena(const Plan& plan, Report& report);

// Checks that `uses` has one lifetime for each bucket that an op touches; and checks intervals, places in the
// arena and residents.
void check_lifetimes(const Graph& graph, const Plan& plan, const Places& places, Report& report);

// Returns the lifetime in `uses` that holds the tensor, or no_id if there is none.
LifetimeId lifetime_of(const Plan& plan, const Places& places, const Instruction& instruction,
                       TensorId tensor);

inline bool lives_across_steps(const Graph& graph, TensorId tensor) {
  const TensorKind kind = graph.kind_of(tensor);
  return kind == TensorKind::parameter || kind == TensorKind::optimizer_state;
}
inline bool is_clip(const Graph& graph, OpId op) {
  for (const TensorId id : graph.op(op).writes) {
    if (id == graph.clip) return true;
  }
  return false;
}

}  // namespace stowage::validation
