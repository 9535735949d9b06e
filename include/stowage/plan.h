// Plan: one training step as instructions on lanes, with every byte placed. Immutable and periodic.
//
//   position       0        1        2        3        4        5
//   h2d      [ W0 ][ W1 ]          [ W1 ][ x0 ][ W0 ]
//   compute        [ f0 ]   [ f1 ] [ loss ] [ b1 ]  [ r0 ][ b0 ]
//   d2h                     [ x0 ]            [ g1 ]       [ g0 ]
//   host     [ update 0 ][ update 1 ]                            [ clip ] …
//            `-- of the step before, under the commit rule
//
// A rank's step has a peer lane, too: it works beside the compute lane, on the same arena.
//
// Positions count the instructions of the compute and the peer lane (update launches included), in the order
// of the list. A Lifetime holds arena bytes over a half-open interval of positions, transfers included.
// Lifetimes may share bytes only if their intervals are disjoint. The uses of the later one then come after
// all uses of the earlier one; where lanes differ, a wait says so. Prefetches and ops of the peer lane wait
// for no position: they may begin before the compute lane comes to `first`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/device.h"
#include "stowage/graph.h"
#include "stowage/lanes.h"
#include "stowage/machine.h"

namespace stowage {

using BucketId = std::uint32_t;
using LifetimeId = std::uint32_t;
using InstructionId = std::uint32_t;
using Position = std::int64_t;

// The place of a bucket's value through the step.
enum class Residency : std::uint8_t {
  resident,    // kept in the arena, across steps too
  held,        // brought in once per step, kept from first to last use
  streamed,    // brought in for each use or group of uses
  offloaded,   // moved to the host between some uses: from forward to backward, or in long pauses
  recomputed,  // dropped after forward, rebuilt in backward
  transient,   // lives between its writer and its last reader
  host,        // never on the device
};
std::string_view to_string(Residency residency);

// How the compute lane goes through the micro-batches of a step (Graph::micro_batches). A step with one
// micro-batch is layer_major.
struct MicroBatchOrder {
  // Each half-block for all micro-batches: its weights come in once per phase.
  static const MicroBatchOrder layer_major;
  // Each micro-batch as a whole: `forwards` forwards, then backward and forward in turn, as a stage of a
  // pipeline runs them. So many micro-batches have activations at a time. With one, each micro-batch goes
  // forward and backward before the next one begins. At least 1, and at most the micro-batches there are.
  static constexpr MicroBatchOrder ahead(std::uint32_t forwards) { return {false, forwards}; }

  bool is_layer_major = true;
  std::uint32_t forwards = 0;  // of `ahead`; 0 in layer_major
  friend bool operator==(const MicroBatchOrder&, const MicroBatchOrder&) = default;
};
inline constexpr MicroBatchOrder MicroBatchOrder::layer_major{};
// Returns "layer_major", "batch_major" for ahead(1), or "ahead N".
std::string to_string(MicroBatchOrder order);

// [begin, end)
struct ByteRange {
  Bytes begin = 0;
  Bytes end = 0;
  Bytes bytes() const { return end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// A bucket's place in a memory without an arena, for the whole run.
struct BucketPlace {
  MemoryId memory = MemoryId::host;
  bool pinned = false;  // page-locked, because transfers touch it
  // Set if a gradient bucket takes turns in the gradient ring: its first byte there. The bucket then has no
  // other bytes on the host.
  std::optional<Bytes> ring_offset{};
  // 0: all bytes of the bucket are in the ring at once. Otherwise its slices take turns in `ring_span` bytes,
  // a multiple of most_tensor_alignment: byte b is at b % ring_span, and each slice leaves by an offload of
  // its own.
  Bytes ring_span = 0;
  friend bool operator==(const BucketPlace&, const BucketPlace&) = default;
};

struct BucketTensor {
  TensorId tensor = no_id;
  Bytes offset = 0;  // inside the bucket: a multiple of tensor_alignment (graph.h) of the tensor's bytes
  friend bool operator==(const BucketTensor&, const BucketTensor&) = default;
};
// Tensors that share one contiguous range, on the device and in each memory in which the bucket has a place
// (in the gradient ring see BucketPlace::ring_span). Every tensor of the graph is in exactly one bucket.
// Optimizer state that is cut is the exception: each slice has a bucket, and the whole has none. Tensors
// joined by an alias are in the same bucket at the same offset; so may be partial sums of one gradient
// (Graph::gradient_groups) of which no two are needed at the same time. Slices of a parameter or a gradient
// are in its bucket, at the offset of their rows.
struct Bucket {
  std::string name;
  TensorKind kind = TensorKind::activation;
  Residency residency = Residency::transient;
  std::vector<BucketPlace> places;  // at most one in each memory
  Bytes bytes = 0;
  std::vector<BucketTensor> tensors;

  bool on_host() const { return place_in(MemoryId::host) != nullptr; }
  bool pinned() const { return on_host() && place_in(MemoryId::host)->pinned; }
  bool in_ring() const { return on_host() && place_in(MemoryId::host)->ring_offset.has_value(); }
  // The bucket's bytes in the gradient ring, and the place of byte `byte` among them.
  Bytes ring_bytes() const { return ring_span() > 0 ? ring_span() : bytes; }
  Bytes byte_in_ring(Bytes byte) const { return ring_span() > 0 ? byte % ring_span() : byte; }
  // True if the range is contiguous in the ring.
  bool is_whole_in_ring(ByteRange range) const {
    return ring_span() == 0 || range.bytes() == 0 ||
           range.begin / ring_span() == (range.end - 1) / ring_span();
  }
  const BucketPlace* place_in(MemoryId memory) const {
    for (const BucketPlace& place : places)
      if (place.memory == memory) return &place;
    return nullptr;
  }
  friend bool operator==(const Bucket&, const Bucket&) = default;

 private:
  Bytes ring_span() const { return place_in(MemoryId::host)->ring_span; }
};

struct Lifetime {
  BucketId bucket = no_id;
  Position first = 0;
  Position last = 0;
  Bytes offset = 0;  // position in the arena
  // The instruction after which the bytes are dead, no_id for residents. Every other use of the
  // lifetime happens before it.
  InstructionId end = no_id;
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

enum class InstructionKind : std::uint8_t {
  launch,     // an op of forward or backward, compute or peer lane
  recompute,  // a repeated forward op, compute or peer lane
  prefetch,   // host bucket -> its lifetime, h2d lane
  offload,    // lifetime -> its host bucket, d2h lane
  gate,       // the clip op, host lane: every gradient has landed, and the norm is known
  commit,     // an update op, behind the gate: on the host lane (a host step) or on the compute lane. With
              // Plan::optimizer_in_backward a host step may stand before the gate
  speculate,  // the update op of a later host step, before the gate and as if nothing will be clipped: it
              // leaves an undo record; the host step then does nothing, or undoes it and updates
};
std::string_view to_string(InstructionKind kind);
constexpr bool is_transfer(InstructionKind kind) {
  return kind == InstructionKind::prefetch || kind == InstructionKind::offload;
}
// True if instructions of that kind may be on the lane.
constexpr bool runs_on(InstructionKind kind, LaneRole lane) {
  if (index_of(lane) >= lane_roles) return false;
  const LaneRow& row = row_of(lane);
  switch (kind) {
    case InstructionKind::launch:
    case InstructionKind::recompute:
      return row.computes_on(MemoryId::device);
    case InstructionKind::prefetch:
      return row.from == MemoryId::host && row.to == MemoryId::device;
    case InstructionKind::offload:
      return row.from == MemoryId::device && row.to == MemoryId::host;
    case InstructionKind::gate:
    case InstructionKind::speculate:
      return row.computes_on(MemoryId::host);
    case InstructionKind::commit:
      return !row.moves() && lane != LaneRole::peer;
  }
  return false;
}

// `steps_back` 0: the same step; 1: the step before (nothing to wait for in the first step).
struct Wait {
  InstructionId instruction = no_id;
  std::uint32_t steps_back = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};

struct Instruction {
  InstructionKind kind = InstructionKind::launch;
  LaneRole lane = LaneRole::compute;
  OpId op = no_id;              // set unless the instruction is a transfer
  LifetimeId lifetime = no_id;  // set for prefetch and offload
  // On the compute and peer lane: the lifetimes that hold its operands, one per bucket touched.
  std::vector<LifetimeId> uses{};
  // The list is minimal: lane order, the gate and other waits imply none of its waits. Removing any wait
  // makes the plan wrong. Waits and lane order together have no cycle.
  std::vector<Wait> waits{};
  // prefetch, offload: the bytes of the bucket that move; empty: all. A parameter that is cut comes in slice
  // by slice, each after its update. If only some of its slices are updated on the host, the parameter is
  // resident; these slices alone come in before its first use, and their gradients alone leave before the
  // gate. A gradient with a ring_span leaves slice by slice.
  // speculate: the place of its undo record in Plan::undo_bytes.
  ByteRange part{};
  friend bool operator==(const Instruction&, const Instruction&) = default;
};
inline bool runs_on_device(const Instruction& instruction) {
  return row_of(instruction.lane).computes_on(MemoryId::device);
}
inline bool runs_on_host(const Instruction& instruction) { return instruction.lane == LaneRole::host; }

// The order of `instructions` is one in which they may all be enqueued: each lane runs its own in this order,
// and waits of the same step point backwards.
//
// The step's *gate* waits (through its lane or its waits) for every gradient. The engine waits for the gate
// before it enqueues the instructions behind it, the commit phase: commits on the host and on the device, and
// the transfer of the clip scale. It enqueues nothing of a step before the gate of the previous step has
// passed. The gate therefore happens before everything behind it and before the whole next step; the waits
// between steps that remain are for host steps of the previous step, and for update launches, which stand
// behind its gate. Only commits change what outlives the step, so without `optimizer_in_backward` none can
// begin before the gate has passed, and the validator refuses one that stands there.
//
// Parts of the norm (one f64 sum of squares for each parameter or slice) are computed where the gradient is
// made and land last, in one small bucket: the gate waits for that bucket alone. A `recompute` of an op that
// also writes a value which crosses units, or the loss, writes that value into a copy that nobody reads.
//
// A *speculated* update changes the host's bytes of its parameter and state before the gate. It can be undone
// bit-exactly, and nothing reads these bytes before its commit. It begins when its gradient has landed and
// every prefetch of the step has read the weight. Its commit does nothing if the clip scale is 1; otherwise
// it undoes the update and makes it with the scale, in one pass. Gradients of all host updates stay on the
// host until the gate, also where nothing is clipped: the loss and the norm may turn out not to be finite,
// and undoing an update needs its gradient.
//
// `optimizer_in_backward` replaces speculated updates by host steps before the gate, which are made for good.
// Such a host step begins when its gradient has landed and every prefetch of the step has read the weight,
// and does not look at the clip scale. Nobody needs its gradient afterwards, so the buckets of such gradients
// take turns in one region of host memory, the *gradient ring*: an offload waits for the host steps that
// apply the previous gradients of its bytes.
//
//   d2h     [ g5 ][ g4 ][ g3 ]       [ g2 ]     [ g1 ] …
//   host          [ update 5 ][ update 4 ][ update 3 ] …
//   ring      g5    g4    g3           g5's       g4's bytes
struct Plan {
  // `bound_by` if updates and copies together fill host memory: the host lane determines the bound, which
  // would be lower if copies took nothing of host memory.
  static constexpr const char* host_memory_binds = "host memory";

  std::string policy;  // "auto", "none", … (to_string of Policy)
  MicroBatchOrder order = MicroBatchOrder::layer_major;
  std::vector<Bucket> buckets;
  std::vector<Lifetime> lifetimes;
  std::vector<Instruction> instructions;
  InstructionId gate = no_id;          // the plan's only gate instruction
  Bytes alignment = 256;               // alignment of lifetime offsets: a power of two, at least 256
  Bytes device_peak_bytes = 0;         // size of the arena: max over lifetimes of offset + bucket bytes
  Bytes live_peak_bytes = 0;           // largest sum of live bytes: no placement could be smaller
  bool optimizer_in_backward = false;  // true: host steps may stand before the gate
  Bytes ring_bytes = 0;                // size of the gradient ring, which is page-locked
  Bytes host_bytes = 0;                // host buckets outside of the ring, the ring, and the undo records
  Bytes pinned_bytes = 0;              // page-locked part of host_bytes
  Bytes undo_bytes = 0;                // undo records of speculated updates
  Bytes h2d_bytes = 0;                 // bytes copied per step
  Bytes d2h_bytes = 0;                 // bytes copied per step
  Bytes bucket_bytes = 0;              // target size of a parameter bucket; 0: one tensor each
  double predicted_step_seconds = 0;   // duration of a step that is not clipped
  double predicted_stall_seconds = 0;
  // Duration of a step if every other step is clipped, and if every step is. Only plans with speculated
  // updates have different durations.
  double half_clipped_seconds = 0;
  double clipped_seconds = 0;
  double lower_bound_seconds = 0;  // lower bound: no plan in the budget takes less
  std::string bound_by;            // lane that determines lower_bound_seconds, or host_memory_binds
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Returns the bytes of the bucket that a prefetch or offload moves.
inline ByteRange moved_bytes(const Plan& plan, const Instruction& transfer) {
  if (transfer.part.bytes() > 0) return transfer.part;
  return {0, plan.buckets[plan.lifetimes[transfer.lifetime].bucket].bytes};
}

// Returns by op of the graph (which has `ops`) the instruction that speculates its update, else no_id.
inline std::vector<InstructionId> speculations(const Plan& plan, std::size_t ops) {
  std::vector<InstructionId> found(ops, no_id);
  for (InstructionId id = 0; id < plan.instructions.size(); ++id)
    if (plan.instructions[id].kind == InstructionKind::speculate) found.at(plan.instructions[id].op) = id;
  return found;
}

// Why there is no plan. A value for the caller to handle.
struct Infeasible {
  Bytes budget = 0;  // budget that was asked for
  // The smallest budget that works; every larger one does, too. For host bytes an upper estimate of the
  // minimum.
  Bytes minimum = 0;
  bool host = false;  // true: `budget` and `minimum` are host bytes; false: device bytes
  // For device bytes: the op at which the smallest plan has most live bytes. Means nothing for host bytes.
  std::string op;
  // For host bytes: the search reached its limit of work before it had failed for a budget of 1 % less, so
  // less than `minimum` may work.
  bool at_most = false;
};

// Seconds since the gate of the previous step, at which a step starts.
struct Interval {
  double begin = 0;
  double end = 0;
};
// When each instruction runs once all steps take the same time.
struct Timeline {
  std::vector<Interval> instructions;  // one interval per instruction
  double step_seconds = 0;             // period
  double stall_seconds = 0;            // compute lane idle within the period
};

// Versioned JSON without loss: writes version 5, reads older versions too. Throws InvalidInput if the text is
// no well-formed plan.
std::string to_json(const Plan& plan);
Plan plan_from_json(std::string_view text);

}  // namespace stowage
