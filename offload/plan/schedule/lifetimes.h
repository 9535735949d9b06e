// Lifetimes pass: from choices to the sequence of the compute and peer lanes and to each bucket's lifetimes,
// from first use to last. The schedule pass adds the time of transfers.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "offload/plan/problem/buckets.h"
#include "offload/plan/problem/choices.h"
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
  Position last_before_update = 0;  // the last use before update launches: offloads follow it
  bool prefetched = false;          // filled by a transfer rather than by its first use
  bool offloaded = false;           // copied to the host after its last use
  bool resident = false;
  // Has its bytes from the first position to the last, but does not live across steps.
  bool whole_step = false;
  bool copy = false;  // written by a replay and read by nobody
  // If the parameter or gradient is cut: the first slice that transfers move. Transfers move all slices
  // behind it, too.
  std::uint32_t first_moved = 0;
  // The schedule pass sets the four fields below.
  Position first = 0;  // `first` and `last` include the time of transfers
  Position last = 0;
  // First position at which its prefetch may start: `first`, but for residents, which are always there.
  Position load = 0;
  Position order = 0;  // prefetches that start at one position go by this, then by first use
};

// True if the lifetime ends with its offload, if it has one. A gradient with slices that are updated on the
// device stays for these updates.
inline bool leaves(const DraftLifetime& lifetime) { return lifetime.last_use == lifetime.last_before_update; }

// Returns the bytes that each transfer of the lifetime moves, in the order in which the link moves them. A
// parameter that is cut has a range for each slice, because a slice comes as soon as the host has updated it.
// Every other lifetime has one range, also that of a gradient that leaves by slices (gradient_ring.h).
std::vector<ByteRange> transfers_of(const DraftLifetime& lifetime, const BucketLayout& layout);

// The lifetimes that the instruction of each position touches, one for each bucket.
class Uses {
 public:
  Uses() = default;
  // `uses` may come in any order. Uses of one position keep their order.
  Uses(std::size_t positions, const std::vector<std::pair<Position, LifetimeId>>& uses);

  std::span<const LifetimeId> at(Position position) const {
    const auto p = static_cast<std::size_t>(position);
    return {ids_.data() + begins_[p], begins_[p + 1] - begins_[p]};
  }
  std::vector<LifetimeId>& all() { return ids_; }  // lifetimes of all positions, one position after another

 private:
  std::vector<std::size_t> begins_;  // first index of each position, and the end
  std::vector<LifetimeId> ids_;
};

// A compute sequence with its lifetimes, which have no places yet.
struct Draft {
  std::vector<SequenceStep> sequence;  // steps of the sequence, one per position
  Position backward_end = 0;           // position of the first update launch, or the end
  std::vector<DraftLifetime> lifetimes;
  Uses uses;
  std::vector<std::uint8_t> speculated;  // Choices::speculated
  EarlyUpdates early_updates = EarlyUpdates::undoable;
  // True if the host updates this parameter bucket before the gate.
  bool speculates(BucketId parameters) const { return !speculated.empty() && speculated[parameters] != 0; }

  // By position: its *stage*, numbered from 0. A stage is a run of instructions of one unit's forward, or of
  // its backward with its replay. Update launches are one stage, the last.
  std::vector<std::uint32_t> stages(const Graph& graph) const;
};

// Makes the draft of these choices. Its sequence has the ops in the analysis's order, with each unit's replay
// directly before the unit's first backward op, and the updates of resident parameters last. `gathers_ahead`:
// how many exchanges replayed gathers overtake (gathers_ahead.h).
Draft make_lifetimes(const Graph& graph, const RecomputeAnalysis& analysis, const BucketLayout& layout,
                     const Choices& choices, std::uint32_t gathers_ahead = 0);

}  // namespace stowage
