// Checks what stands still: ids, buckets, lifetimes, and each instruction by itself.
#pragma once

#include <vector>

#include "offload/plan/validate/report.h"

namespace stowage::validation {

// Where each tensor stands, by tensor. Whole only when check_buckets found nothing.
struct Places {
  std::vector<BucketId> bucket;
  std::vector<Bytes> offset;  // inside the bucket
};

// Every tensor in exactly one bucket, inside its bytes; aliases at one place, slices of parameters and
// gradients where their rows are, others apart. Optimizer state that is cut is in none but by its slices.
Places check_buckets(const Graph& graph, const Plan& plan, Report& report);

// Ids in range, every kind of instruction on its lane and with its fields. Everything below may
// index freely when this has found nothing.
void check_ids(const Graph& graph, const Plan& plan, Report& report);

// Every lifetime inside the arena, at a multiple of the plan's alignment.
void check_places_in_arena(const Plan& plan, Report& report);

// One lifetime in `uses` for each bucket that an op touches; intervals, places in the arena, residents.
void check_lifetimes(const Graph& graph, const Plan& plan, const Places& places, Report& report);

// The lifetime in `uses` that holds the tensor, no_id if there is none.
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
