// The game that the planner plays, written down apart from it: what may be decided for one training step, and
// what each decision means for lanes and memory. The oracle looks at every decision; the planner must not
// lose to it.
//
// Rules (include/stowage/plan.h; docs/planning.md):
// - Four lanes, each in order. The step's gate (the clip op, on the host lane) waits for the whole backward
//   and for all that lands; updates and everything of the next step come behind it. So one period starts at a
//   gate with idle links and ends with the next gate: nothing else is carried over; there is no transient.
// - The compute lane runs the updates of resident parameters, forward, and backward in program order, each
//   unit's replay directly before its first backward op. A unit in which forward turns at once is not
//   replayed.
// - A parameter bucket is resident (with its optimizer state and, from backward to its update, its gradient)
//   or is loaded for groups of consecutive uses; any grouping is allowed, held (one group) and streamed (one
//   each) among them. Then its gradient goes to the host, where it is updated.
// - Each parameter's update on the host is late, behind the gate and in front of the bucket's next fetch, or,
// if
//   it can be taken back, early: it begins in backward, when its gradient has landed and the bucket has been
//   fetched for the last time, writes an undo record, and the gate waits for it. Steps are timed as if none
//   is clipped, so that the commit of an early update takes no time.
// - Parameters may share a bucket with their neighbours in first-use order; any cut into runs is allowed.
// - A value that backward wants is kept, or on the host between its last forward and first late use and in
//   any gaps between late uses, or, where its own unit's ops rebuild it, recomputed. An op's other outputs
//   are then written into a copy for nobody.
// - What is ever on the host has a place there for the whole step, and all places fit into the host's memory:
//   inputs, a loaded parameter's bucket, gradient and state, the undo record of an early update, offloaded
//   values, the loss, the parts of the norm and the clip scale.
// - Bytes serve one lifetime at a time: from the start of its prefetch or first op to the end of its last op
//   or offload.
//
// What is left out, because no plan gains by it: loading a bucket anew for the very next op (it could stay,
// the op before has it until then), a second copy of a bucket that is still there (the first could stay),
// updates of residents in another order (all stand before forward), late updates in another order than that
// in which their buckets are next fetched (of any set that must be done, that order finishes each prefix
// first), and early updates in another order than that in which they may begin (it ends first, and the gate
// alone waits for them).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage::oracle {

inline constexpr Bytes alignment = 256;         // of offsets
inline constexpr std::uint32_t resident = ~0U;  // as a load

enum class Kept : std::uint8_t { keep, offload, recompute };

using UpdateMask = std::uint32_t;  // bit p: of the p-th parameter in first-use order

constexpr std::uint32_t kept_over_turn = 1U << 31U;  // of `away`: on the device from forward to late uses
// One way to play. `loads` by loaded bucket (parameter buckets, then inputs): bit g: away in the g-th gap
// between its uses; or `resident`.
struct Choice {
  std::vector<std::uint32_t> bucket_of;  // by parameter in first-use order: its run
  std::vector<Kept> values;              // by value that backward may want
  // By value that is offloaded: bit g: away in the g-th gap between late uses; perhaps not before.
  std::vector<std::uint32_t> away;
  std::vector<std::uint32_t> loads;
  UpdateMask early = 0;  // of parameters that are loaded. The search decides it (search.h)
};

// Bytes in one place: from a first op, or the prefetch before it, to a last op, or the offload behind it.
struct Stay {
  std::vector<TensorId> tensors;  // of its bucket; left out where steps are only counted
  Bytes bytes = 0;
  // Compute jobs. Of a resident's gradient the last is the update of the next period.
  int first = 0, last = 0;
  int prefetch = -1, offload = -1;
  bool wraps = false;   // lives across the gate
  bool always = false;  // resident: no jobs are looked at
};
struct Compute {
  OpId op = no_id;
  bool replay = false;
  double seconds = 0;
  std::uint64_t needs = 0;                // prefetches
  Bytes takes = 0, frees = 0;             // when it starts, when it has ended; aligned
  std::vector<int> prefetches, offloads;  // first used by it; ready behind it
};
struct Prefetch {
  double seconds = 0;
  Bytes bytes = 0;         // aligned
  int use = 0;             // first op that needs it
  int behind = -1;         // the bucket's last use before it
  int offload = -1;        // that makes the host's copy
  UpdateMask updates = 0;  // that must come first: of a bucket's first load
};
struct Offload {
  double seconds = 0;
  Bytes bytes = 0;  // aligned
  int behind = 0;   // op
};
// A parameter's. One that is resident has no seconds, op and jobs here.
struct Update {
  OpId op = no_id;
  double late_seconds = 0;
  double early_seconds = 0;  // with its undo record
  Bytes undo_bytes = 0;      // of that record
  int prefetch = -1;         // the last of its bucket
  int offload = -1;          // of its gradient
};

// One period, gate to gate, of one choice.
struct Step {
  std::vector<Compute> compute;
  std::vector<Prefetch> prefetches;  // with residents the first is the clip scale's, which must go first
  std::vector<Offload> offloads;
  std::vector<Stay> stays;
  Bytes live = 0;               // at the gate, aligned
  Bytes host = 0;               // without undo records
  std::vector<Update> updates;  // by parameter
  UpdateMask undoable = 0;      // those that may be early
  double gate_seconds = 0;
  bool has_clip = false;
  Bytes most_live() const;  // while some op runs, at the very least
  Bytes host_bytes(UpdateMask early) const;
};

class Game {
 public:
  // InvalidInput for a graph beyond the oracle: aliases, values worked on in place, over 64 transfers.
  Game(const Graph& graph, const Machine& machine);
  // Every choice whose most_live() is within the limit, with its step (whose stays name no tensors).
  void each(Bytes most_live, const std::function<void(const Choice&, Step&&)>& visit) const;
  Step step(const Choice& choice) const;
  // How a plan plays.
  Choice choice_of(const Plan& plan) const;
  std::string describe(const Choice& choice) const;
  // The number of choices.
  double size() const;

 private:
  struct Parameter {
    TensorId tensor = no_id, gradient = no_id;
    std::vector<TensorId> state;
    OpId update = no_id;
  };
  struct Place {
    OpId op = no_id;
    bool replay = false;
  };
  struct Use {
    int at = 0;
    bool writes = false;
  };
  // What follows from runs and from what is recomputed.
  struct Sequence {
    std::vector<Place> places;
    int turn = 0;                          // the first place behind forward
    std::vector<std::vector<Use>> uses;    // by tensor
    std::vector<std::vector<int>> loaded;  // by loaded bucket: places
    std::vector<std::uint8_t> rebuilt;     // by tensor
  };
  std::vector<OpId> replay_of(std::uint32_t unit, const Choice& choice,
                              std::vector<std::uint8_t>& rebuilt) const;
  Sequence sequence_of(const Choice& choice) const;
  std::vector<std::vector<TensorId>> loaded_buckets(const Choice& choice) const;
  Step build(const Choice& choice, const Sequence& sequence, bool detailed) const;
  bool may_offload(const Sequence& sequence, TensorId value) const;
  std::uint32_t late_gaps(const Sequence& sequence, TensorId value) const;
  void find_parameters();
  void find_values();
  void each_kept(Choice& choice, std::size_t value,
                 const std::function<void(Choice&, const Sequence&)>& visit) const;
  void each_offload(Choice& choice, const Sequence& sequence, std::size_t value,
                    const std::function<void(Choice&)>& visit) const;
  void each_load(Choice& choice, const Sequence& sequence, std::size_t bucket,
                 const std::function<void(Choice&)>& visit) const;
  void each_choice(const std::function<void(Choice&, const Sequence&)>& visit) const;
  Bytes bytes_of(TensorId id) const { return graph_.tensor(id).bytes(); }

  friend class StepBuilder;
  const Graph& graph_;
  const Machine& machine_;
  bool is_trained(std::size_t parameter) const { return parameters_[parameter].update != no_id; }
  std::vector<Parameter> parameters_;
  std::vector<TensorId> inputs_;
  std::vector<TensorId> values_;
  std::vector<std::uint8_t> may_recompute_;  // by value
  std::vector<std::uint32_t> made_in_;       // by tensor: unit whose forward makes it, no_id
  std::vector<std::uint8_t> boundary_;       // by tensor: touched by two units
  std::vector<TensorId> sums_;
  OpId clip_op_ = no_id;
};

}  // namespace stowage::oracle
