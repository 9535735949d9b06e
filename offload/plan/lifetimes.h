// Lifetimes pass: from choices to the compute lane's sequence and the intervals in which each bucket
// is needed on the device, in uses; transfers' time is added by the schedule pass.
#pragma once

#include <vector>

#include "offload/plan/buckets.h"
#include "offload/plan/choices.h"
#include "offload/recompute/recompute.h"

namespace stowage {

struct SequenceStep {
  OpId op = no_id;
  bool recompute = false;
};

struct DraftLifetime {
  BucketId bucket = no_id;
  Position first_use = 0;  // positions of the first and last compute instruction that touch it
  Position last_use = 0;
  bool prefetched = false;  // filled by a transfer rather than by its first use
  bool offloaded = false;   // copied to the host after its last use
  bool resident = false;
  bool copy = false;   // written by a replay and read by nobody
  Position first = 0;  // with transfers (schedule pass)
  Position last = 0;
  Position order = 0;  // of prefetches that claim at one position: lower first, then by first use
  // Where the draft has spans: when its bytes are taken, for placement; see PackingItem.
  Position span_first = 0, span_last = 0, span_wrap = 0;
};

struct Draft {
  std::vector<SequenceStep> sequence;  // by position
  Position backward_end = 0;           // position of the first update launch, or the end
  std::vector<DraftLifetime> lifetimes;
  std::vector<std::vector<LifetimeId>> uses;  // by position: one lifetime per bucket touched
  bool has_spans = false;
};

// Forward ops, then backward ops, each unit's replay directly before its first backward op, then the
// updates of resident parameters.
Draft make_lifetimes(const Graph& graph, const RecomputeAnalysis& analysis, const BucketLayout& layout,
                     const Choices& choices);

}  // namespace stowage
