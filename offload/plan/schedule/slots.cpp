#include "offload/plan/schedule/slots.h"

#include <algorithm>
#include <tuple>

#include "src/graph/cost.h"

namespace stowage {
namespace {

class SlotMaker {
 public:
  SlotMaker(const Graph& graph, const BucketLayout& layout, const Draft& draft, const GradientRing& ring)
      : graph_(graph), layout_(layout), draft_(draft), ring_(ring) {}

  std::vector<Slot> make() && {
    add_compute();
    add_transfers();
    add_host();
    std::stable_sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
      return std::tuple(a.position, a.place, a.order) < std::tuple(b.position, b.place, b.order);
    });
    return std::move(slots_);
  }

 private:
  void add_compute() {
    for (std::size_t p = 0; p < draft_.sequence.size(); ++p) {
      const auto [op, recompute] = draft_.sequence[p];
      slots_.push_back({.position = static_cast<Position>(p),
                        .place = Slot::Place::compute,
                        .kind = recompute                              ? InstructionKind::recompute
                                : graph_.op(op).phase == Phase::update ? InstructionKind::commit
                                                                       : InstructionKind::launch,
                        .lane = layout_.lanes[op],
                        .op = op});
    }
  }
  void add_transfers() {
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
      const DraftLifetime& lifetime = draft_.lifetimes[id];
      if (lifetime.prefetched)
        add_transfer(id, {.position = lifetime.load,
                          .place = Slot::Place::prefetch,
                          .order = {lifetime.order, lifetime.first_use},
                          .kind = InstructionKind::prefetch,
                          .lane = LaneRole::h2d,
                          .lifetime = id});
      if (lifetime.offloaded)
        add_transfer(id, {.position = lifetime.last_before_update,
                          .place = Slot::Place::offload,
                          .kind = InstructionKind::offload,
                          .lane = LaneRole::d2h,
                          .lifetime = id});
    }
  }
  void add_transfer(LifetimeId id, Slot slot) {
    if (slot.place == Slot::Place::offload && slices_in_ring(draft_.lifetimes[id].bucket) > 0)
      return add_slices(id, slot);
    for (const ByteRange& part : transfers_of(draft_.lifetimes[id], layout_)) {
      slot.part = part.bytes() < layout_.buckets[draft_.lifetimes[id].bucket].bytes ? part : ByteRange{};
      slots_.push_back(slot);
    }
  }
  // Returns how many slices of the gradient have bytes in the gradient ring at a time; 0 if it leaves
  // as a whole.
  std::size_t slices_in_ring(BucketId bucket) const {
    const auto turn = ring_.turns.find(bucket);
    return turn == ring_.turns.end() ? 0 : turn->second.slices;
  }
  // Adds the offloads of a gradient that leaves by slices. First come as many slices as the ring has bytes
  // for. Then updates and slices alternate: each update is followed by the slice that takes its gradient's
  // bytes. All of these stand behind the other offloads of the position and their updates.
  void add_slices(LifetimeId id, Slot slot) {
    const BucketId bucket = draft_.lifetimes[id].bucket;
    const std::size_t at_a_time = slices_in_ring(bucket);
    slot.place = Slot::Place::early;
    for (std::size_t slice = 0; slice < layout_.slices[bucket].size(); ++slice) {
      slot.part = layout_.slices[bucket][slice];
      slot.order = slice < at_a_time ? std::pair(turn_of(bucket), Position{0})
                                     : behind_update(bucket, slice - at_a_time);
      slots_.push_back(slot);
    }
  }
  static Position turn_of(BucketId bucket) { return static_cast<Position>(bucket) + 1; }
  static std::pair<Position, Position> update_by(BucketId bucket, std::size_t slice) {
    return {turn_of(bucket), 2 * static_cast<Position>(slice) + 1};
  }
  static std::pair<Position, Position> behind_update(BucketId bucket, std::size_t slice) {
    return {turn_of(bucket), 2 * static_cast<Position>(slice) + 2};
  }
  // Adds the gate behind backward, and behind the gate the host's updates, bucket by bucket in the order of
  // first use. Adds the early updates before the gate, in the order in which they can begin.
  void add_host() {
    last_transfer_ = last_transfers(draft_, layout_);
    const std::vector<BucketId>& order = layout_.parameters;
    std::vector<Position> rank(layout_.buckets.size(), static_cast<Position>(order.size()));
    for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<Position>(i);
    std::vector<std::uint8_t> on_device(graph_.ops.size(), 0);
    for (const SequenceStep& step : draft_.sequence) on_device[step.op] = 1;
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase != Phase::update || on_device[op]) continue;
      bool gate = layout_.bucket_of[graph_.clip] != no_id && writes(op, graph_.clip);
      const bool early = !gate && draft_.speculates(parameters_of(graph_, layout_, op));
      if (early) add_early(op);
      if (early && draft_.early_updates == EarlyUpdates::final) continue;
      const Position turn = gate ? 0 : rank[parameters_of(graph_, layout_, op)];
      slots_.push_back({.position = draft_.backward_end - 1,
                        .place = gate ? Slot::Place::gate : Slot::Place::host,
                        .order = {turn, 0},
                        .kind = gate ? InstructionKind::gate : InstructionKind::commit,
                        .lane = LaneRole::host,
                        .op = op});
    }
  }
  // Adds an early update, behind the offload of its gradient and behind the last prefetch that
  // reads its parameter.
  void add_early(OpId op) {
    Position position = 0;
    std::pair<Position, Position> order{};
    for (const TensorId read : graph_.op(op).reads) {
      const BucketId bucket = layout_.bucket_of[read];
      if (read != graph_.clip) position = std::max(position, last_transfer_[bucket]);
      if (slices_in_ring(bucket) > 0) order = update_by(bucket, layout_.slice_number[read]);
    }
    Slot slot{.position = std::min(position, draft_.backward_end - 1),
              .place = Slot::Place::early,
              .order = order,
              .kind = InstructionKind::commit,
              .lane = LaneRole::host,
              .op = op};
    if (draft_.early_updates == EarlyUpdates::undoable) {
      slot.kind = InstructionKind::speculate;
      slot.part = {undo_bytes_, undo_bytes_ + undo_bytes(graph_, graph_.op(op))};
      undo_bytes_ = slot.part.end;
    }
    slots_.push_back(slot);
  }
  bool writes(OpId op, TensorId tensor) const {
    const auto& ids = graph_.op(op).writes;
    return std::find(ids.begin(), ids.end(), tensor) != ids.end();
  }

  const Graph& graph_;
  const BucketLayout& layout_;
  const Draft& draft_;
  const GradientRing& ring_;
  std::vector<Slot> slots_;
  Bytes undo_bytes_ = 0;                 // undo bytes of the early updates so far
  std::vector<Position> last_transfer_;  // position of the last transfer, by bucket
};

}  // namespace

std::vector<Slot> make_slots(const Graph& graph, const BucketLayout& layout, const Draft& draft,
                             const GradientRing& ring) {
  return SlotMaker(graph, layout, draft, ring).make();
}

BucketId parameters_of(const Graph& graph, const BucketLayout& layout, OpId update) {
  for (TensorId id : graph.op(update).writes)
    if (graph.kind_of(id) == TensorKind::parameter) return layout.bucket_of[id];
  return layout.bucket_of[graph.op(update).writes.front()];
}

}  // namespace stowage
