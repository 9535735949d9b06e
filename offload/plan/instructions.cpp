#include "offload/plan/instructions.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "offload/plan/byte_owners.h"
#include "offload/plan/gradient_ring.h"
#include "offload/plan/lane_waits.h"
#include "offload/plan/waits.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

// The lanes that compute on the device, in whose order positions are counted.
constexpr std::array device_lanes{LaneRole::compute, LaneRole::peer};
std::size_t number_of(LaneRole device_lane) { return device_lane == LaneRole::compute ? 0 : 1; }
// By device lane.
using OnLanes = std::array<InstructionId, device_lanes.size()>;
constexpr OnLanes nowhere{no_id, no_id};
InstructionId latest(const OnLanes& ids) {
  InstructionId latest = no_id;
  for (const InstructionId id : ids)
    if (id != no_id && (latest == no_id || id > latest)) latest = id;
  return latest;
}

// Where an instruction stands in the list: transfers between positions.
enum class Place : std::uint8_t { prefetch, compute, offload, early, gate, host };
struct Slot {
  Position position = 0;
  Place place = Place::compute;
  std::pair<Position, Position> order{};  // within the place
  InstructionKind kind = InstructionKind::launch;
  LaneRole lane = LaneRole::compute;
  OpId op = no_id;
  LifetimeId lifetime = no_id;
  ByteRange part{};
};

class Assembler {
 public:
  Assembler(const Graph& graph, const BucketLayout& layout, const Draft& draft, ByteWaits byte_waits,
            Plan& plan)
      : graph_(graph),
        layout_(layout),
        draft_(draft),
        byte_waits_(byte_waits),
        plan_(plan),
        ring_(gradient_ring(draft, layout)),
        prefetch_of_(draft.lifetimes.size(), no_id),
        last_prefetch_of_(draft.lifetimes.size(), no_id),
        first_offload_of_(draft.lifetimes.size(), no_id),
        offload_of_(draft.lifetimes.size(), no_id),
        first_use_(draft.lifetimes.size(), nowhere),
        last_before_update_(draft.lifetimes.size(), nowhere),
        last_use_(draft.lifetimes.size(), nowhere) {}

  void run() {
    add_compute();
    add_transfers();
    add_host();
    emit();
    index();
    add_value_waits();
    if (layout_.has_peers) want_lane_waits(layout_, draft_, plan_, wanted_);
    add_early_waits();
    add_ring_waits();
    if (byte_waits_ == ByteWaits::by_address) add_reuse_waits();
    if (byte_waits_ == ByteWaits::by_amount) add_amount_waits();
    add_host_waits();
    add_handicaps();
    reduce_waits(plan_, wanted_);
  }

 private:
  void add_compute() {
    for (std::size_t p = 0; p < draft_.sequence.size(); ++p) {
      const auto [op, recompute] = draft_.sequence[p];
      slots_.push_back({.position = static_cast<Position>(p),
                        .place = Place::compute,
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
                          .place = Place::prefetch,
                          .order = {lifetime.order, lifetime.first_use},
                          .kind = InstructionKind::prefetch,
                          .lane = LaneRole::h2d,
                          .lifetime = id});
      if (lifetime.offloaded)
        add_transfer(id, {.position = lifetime.last_before_update,
                          .place = Place::offload,
                          .kind = InstructionKind::offload,
                          .lane = LaneRole::d2h,
                          .lifetime = id});
    }
  }
  void add_transfer(LifetimeId id, Slot slot) {
    if (slot.place == Place::offload && slices_in_ring(draft_.lifetimes[id].bucket) > 0)
      return add_slices(id, slot);
    for (const ByteRange& part : transfers_of(draft_.lifetimes[id], layout_)) {
      slot.part = part.bytes() < bytes_of(id) ? part : ByteRange{};
      slots_.push_back(slot);
    }
  }
  // Of a gradient that leaves by slices: how many have bytes of the gradient ring at a time; else 0.
  std::size_t slices_in_ring(BucketId bucket) const {
    const auto turn = ring_.turns.find(bucket);
    return turn == ring_.turns.end() ? 0 : turn->second.slices;
  }
  // Its slices and their updates follow each other: all slices that have bytes of the ring, an update, the
  // slice that takes these bytes, an update, and so on. Both are behind what else leaves here, and its
  // updates.
  void add_slices(LifetimeId id, Slot slot) {
    const BucketId bucket = draft_.lifetimes[id].bucket;
    const std::size_t at_a_time = slices_in_ring(bucket);
    slot.place = Place::early;
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
  // The gate behind backward, then the host's updates, bucket by bucket in the order of their first use; and
  // those that begin before the gate, bucket by bucket in the order in which they may.
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
      const bool early = !gate && draft_.speculates(parameters_of(op));
      if (early) add_early(op);
      if (early && layout_.optimizer_in_backward) continue;
      const Position turn = gate ? 0 : rank[parameters_of(op)];
      slots_.push_back({.position = draft_.backward_end - 1,
                        .place = gate ? Place::gate : Place::host,
                        .order = {turn, 0},
                        .kind = gate ? InstructionKind::gate : InstructionKind::commit,
                        .lane = LaneRole::host,
                        .op = op});
    }
  }
  // Behind the offload of its gradient, and the last prefetch that reads its parameter.
  void add_early(OpId op) {
    Position position = 0;
    std::pair<Position, Position> order{};
    for (const TensorId read : graph_.op(op).reads) {
      const BucketId bucket = layout_.bucket_of[read];
      if (read != graph_.clip) position = std::max(position, last_transfer_[bucket]);
      if (slices_in_ring(bucket) > 0) order = update_by(bucket, layout_.slice_number[read]);
    }
    Slot slot{.position = std::min(position, draft_.backward_end - 1),
              .place = Place::early,
              .order = order,
              .kind = InstructionKind::commit,
              .lane = LaneRole::host,
              .op = op};
    if (!layout_.optimizer_in_backward) {
      slot.kind = InstructionKind::speculate;
      slot.part = {plan_.undo_bytes, plan_.undo_bytes + undo_bytes(graph_, graph_.op(op))};
      plan_.undo_bytes = slot.part.end;
    }
    plan_.optimizer_in_backward |= layout_.optimizer_in_backward;
    slots_.push_back(slot);
  }
  BucketId parameters_of(OpId update) const {
    for (TensorId id : graph_.op(update).writes)
      if (graph_.kind_of(id) == TensorKind::parameter) return layout_.bucket_of[id];
    return layout_.bucket_of[graph_.op(update).writes.front()];
  }
  bool writes(OpId op, TensorId tensor) const {
    const auto& ids = graph_.op(op).writes;
    return std::find(ids.begin(), ids.end(), tensor) != ids.end();
  }

  void emit() {
    std::stable_sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
      return std::tuple(a.position, a.place, a.order) < std::tuple(b.position, b.place, b.order);
    });
    plan_.instructions.clear();
    plan_.instructions.reserve(slots_.size());
    for (const Slot& slot : slots_) {
      if (slot.place == Place::gate) plan_.gate = static_cast<InstructionId>(plan_.instructions.size());
      plan_.instructions.push_back({slot.kind, slot.lane, slot.op, slot.lifetime});
      plan_.instructions.back().part = slot.part;
      if (byte_waits_ != ByteWaits::by_address) continue;
      const std::span<const LifetimeId> uses = uses_of(slot);
      plan_.instructions.back().uses.assign(uses.begin(), uses.end());
    }
  }
  std::span<const LifetimeId> uses_of(const Slot& slot) const {
    return slot.place == Place::compute ? draft_.uses.at(slot.position) : std::span<const LifetimeId>{};
  }

  void index() {
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (runs_on_device(instruction) && id < plan_.gate) last_backward_[number_of(instruction.lane)] = id;
      if (instruction.kind == InstructionKind::prefetch) index_prefetch(instruction.lifetime, id);
      if (instruction.kind == InstructionKind::offload) index_offload(instruction.lifetime, id);
      for (LifetimeId use : uses_of(slots_[id])) {
        const std::size_t lane = number_of(instruction.lane);
        if (first_use_[use][lane] == no_id) first_use_[use][lane] = id;
        last_use_[use][lane] = id;
        if (slots_[id].position <= draft_.lifetimes[use].last_before_update)
          last_before_update_[use][lane] = id;
      }
    }
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
      plan_.lifetimes[id].end = draft_.lifetimes[id].resident ? no_id : last_of(id);
      if (layout_.has_peers && plan_.lifetimes[id].end != no_id)
        want_each(plan_.lifetimes[id].end, last_use_[id]);
    }
  }
  void index_prefetch(LifetimeId lifetime, InstructionId id) {
    if (prefetch_of_[lifetime] == no_id) prefetch_of_[lifetime] = id;
    last_prefetch_of_[lifetime] = id;
  }
  void index_offload(LifetimeId lifetime, InstructionId id) {
    if (first_offload_of_[lifetime] == no_id) first_offload_of_[lifetime] = id;
    offload_of_[lifetime] = id;
  }
  InstructionId first_of(LifetimeId id) const {
    if (prefetch_of_[id] != no_id) return prefetch_of_[id];
    return *std::min_element(first_use_[id].begin(), first_use_[id].end());  // no_id is the largest
  }
  InstructionId last_of(LifetimeId id) const {
    return offload_of_[id] != no_id && leaves(draft_.lifetimes[id]) ? offload_of_[id] : latest(last_use_[id]);
  }

  void want(InstructionId waiter, InstructionId on, std::uint32_t steps_back = 0) {
    if (waiter != no_id && on != no_id && (waiter != on || steps_back))
      wanted_.push_back({waiter, {on, steps_back}});
  }
  void want_each(InstructionId waiter, const OnLanes& on, std::uint32_t steps_back = 0) {
    for (const InstructionId each : on) want(waiter, each, steps_back);
  }

  // A use waits for its prefetch, an offload for the last use, a prefetch for the offload that made the
  // host's copy, the gate for all that lands and for the end of backward.
  void add_value_waits() {
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
      for (const InstructionId first : first_use_[id]) want(first, last_prefetch_of_[id]);
      want_each(first_offload_of_[id], last_before_update_[id]);
      if (offload_of_[id] != no_id) want(plan_.gate, offload_of_[id]);
    }
    want_each(plan_.gate, last_backward_);
    std::vector<InstructionId> host_copy(layout_.buckets.size(), no_id);  // the last so far
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (instruction.lifetime == no_id) continue;
      const BucketId bucket = draft_.lifetimes[instruction.lifetime].bucket;
      if (instruction.kind == InstructionKind::offload)
        host_copy[bucket] = id;
      else
        want(id, layout_.roles[bucket] == BucketRole::clip ? plan_.gate : host_copy[bucket]);
    }
  }

  bool is_early(InstructionId id) const {
    return slots_[id].place == Place::early && runs_on_host(plan_.instructions[id]);
  }

  // An early update waits for its gradient, and for all who read the weight that it changes. That of a slice
  // waits for what moves the slice.
  void add_early_waits() {
    std::vector<std::vector<InstructionId>> transfers(layout_.buckets.size());
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (instruction.lifetime != no_id)
        transfers[draft_.lifetimes[instruction.lifetime].bucket].push_back(id);
      if (!is_early(id)) continue;
      for (const TensorId read : graph_.op(instruction.op).reads)
        if (read != graph_.clip)
          for (const InstructionId transfer : transfers[layout_.bucket_of[read]])
            if (moves(plan_.instructions[transfer].part, layout_.bucket_of[read], layout_.slice_number[read]))
              want(id, transfer);
    }
  }

  // A gradient in the ring waits for the updates by those that had its bytes before, and so does each slice
  // of one that leaves by slices.
  void add_ring_waits() {
    if (ring_.turns.empty()) return;
    // By parameter bucket, and by gradient bucket, in the order of the plan: of one that is cut, by slice.
    std::vector<std::vector<InstructionId>> updates(layout_.buckets.size()), offloads(layout_.buckets.size());
    for (InstructionId id = 0; id < plan_.gate; ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (is_early(id)) updates[parameters_of(instruction.op)].push_back(id);
      if (instruction.kind == InstructionKind::offload)
        offloads[draft_.lifetimes[instruction.lifetime].bucket].push_back(id);
    }
    for (const auto& [bucket, turn] : ring_.turns) {
      for (const BucketId before : turn.after)
        want(offloads[bucket].front(), updates[layout_.parameters_of[before]].back());
      if (turn.slices == 0) continue;
      for (std::size_t slice = turn.slices; slice < offloads[bucket].size(); ++slice)
        want(offloads[bucket][slice], updates[layout_.parameters_of[bucket]][slice - turn.slices]);
    }
  }

  // Whoever first touches bytes waits for the last uses of every lifetime that had them just before, in this
  // step or, at its beginning, at the end of the one before. Who had them earlier has been waited for by
  // those.
  void add_reuse_waits() {
    std::vector<LifetimeId> order;
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id)
      if (plan_.lifetimes[id].end != no_id) order.push_back(id);
    std::stable_sort(order.begin(), order.end(), [&](LifetimeId a, LifetimeId b) {
      return draft_.lifetimes[a].first < draft_.lifetimes[b].first;
    });
    ByteOwners owners;
    for (LifetimeId id : order) owners.take(begin_of(id), end_of(id), id, [](LifetimeId) {});
    std::vector<std::uint8_t> seen(draft_.lifetimes.size(), 0);  // in this step
    for (LifetimeId id : order) {
      owners.take(begin_of(id), end_of(id), id, [&](LifetimeId before) {
        want_each(first_of(id), last_use_[before], seen[before] ? 0 : 1);
        want(first_of(id), offload_of_[before], seen[before] ? 0 : 1);
      });
      seen[id] = 1;
    }
  }
  // As if bytes had no addresses: those are taken that were left first.
  void add_amount_waits() {
    const std::vector<LifetimeId> firsts = by_position(&DraftLifetime::first);
    const std::vector<LifetimeId> lasts = by_position(&DraftLifetime::last);
    std::size_t left = 0, taken_from = 0;
    Bytes rest = most_live(firsts, lasts);  // of what `taken_from` left; at first of nobody's
    LifetimeId owner = no_id;
    for (LifetimeId id : firsts) {
      while (left < lasts.size() && draft_.lifetimes[lasts[left]].last <= draft_.lifetimes[id].first) ++left;
      for (Bytes wanted = bytes_of(id);;) {
        const Bytes taken = std::min(wanted, rest);
        if (taken > 0 && owner != no_id) {
          want_each(first_of(id), last_use_[owner]);
          want(first_of(id), offload_of_[owner]);
        }
        rest -= taken;
        wanted -= taken;
        if (wanted == 0 || taken_from == left) break;
        owner = lasts[taken_from++];
        rest = bytes_of(owner);
      }
    }
  }
  std::vector<LifetimeId> by_position(Position DraftLifetime::*position) const {
    std::vector<LifetimeId> order;
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id)
      if (first_of(id) != no_id) order.push_back(id);
    std::stable_sort(order.begin(), order.end(), [&](LifetimeId a, LifetimeId b) {
      return draft_.lifetimes[a].*position < draft_.lifetimes[b].*position;
    });
    return order;
  }
  Bytes most_live(const std::vector<LifetimeId>& firsts, const std::vector<LifetimeId>& lasts) const {
    Bytes live = 0, most = 0;
    std::size_t ended = 0;
    for (LifetimeId id : firsts) {
      while (draft_.lifetimes[lasts[ended]].last <= draft_.lifetimes[id].first)
        live -= bytes_of(lasts[ended++]);
      most = std::max(most, live += bytes_of(id));
    }
    return most;
  }
  Bytes bytes_of(LifetimeId id) const { return layout_.buckets[plan_.lifetimes[id].bucket].bytes; }
  Bytes begin_of(LifetimeId id) const { return plan_.lifetimes[id].offset; }
  Bytes end_of(LifetimeId id) const {
    return plan_.lifetimes[id].offset + layout_.buckets[plan_.lifetimes[id].bucket].bytes;
  }

  // Host memory: a prefetch waits for the update of the step before, an offload for the update that
  // still reads what it overwrites. Of a bucket in slices, for those of the slices that it moves.
  void add_host_waits() {
    std::vector<std::vector<InstructionId>> last_steps(layout_.buckets.size());  // by slice
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (!runs_on_host(instruction)) continue;
      for (TensorId tensor : graph_.op(instruction.op).reads) {
        std::vector<InstructionId>& of = last_steps[layout_.bucket_of[tensor]];
        of.resize(std::max<std::size_t>(of.size(), layout_.slice_number[tensor] + 1), no_id);
        of[layout_.slice_number[tensor]] = id;
      }
    }
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (instruction.lifetime == no_id) continue;
      const BucketId bucket = draft_.lifetimes[instruction.lifetime].bucket;
      for (std::size_t slice = 0; slice < last_steps[bucket].size(); ++slice)
        if (moves(instruction.part, bucket, slice)) want(id, last_steps[bucket][slice], 1);
    }
  }
  bool moves(const ByteRange& part, BucketId bucket, std::size_t slice) const {
    if (part.bytes() == 0) return true;
    const ByteRange& of = layout_.slices[bucket][slice];
    return part.begin < of.end && of.begin < part.end;
  }

  // What an emulated system waits for without need. What follows in the same lane waits with its first.
  void add_handicaps() {
    const Handicaps& handicaps = draft_.handicaps;
    std::array<InstructionId, lane_roles> first;
    first.fill(no_id);
    InstructionId last_update = no_id, last_load = no_id;
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      const Instruction& instruction = plan_.instructions[id];
      InstructionId& lane_first = first[static_cast<std::size_t>(instruction.lane)];
      if (lane_first == no_id) lane_first = id;
      if (runs_on_host(instruction) && instruction.kind == InstructionKind::commit) last_update = id;
      if (instruction.kind == InstructionKind::prefetch && draft_.lifetimes[instruction.lifetime].whole_step)
        last_load = id;
    }
    const auto first_on = [&](LaneRole lane) { return first[index_of(lane)]; };
    for (const LaneRole lane : device_lanes)
      if (handicaps.wait_for_loads) want(first_on(lane), last_load);
    for (const LaneRole lane : {LaneRole::compute, LaneRole::peer, LaneRole::h2d})
      if (handicaps.wait_for_updates) want(first_on(lane), last_update, 1);
    if (handicaps.one_after_another) add_turns();
  }
  // Behind the gate there is nothing to take turns with.
  void add_turns() {
    InstructionId op = no_id;
    std::vector<InstructionId> transfers;  // since that op
    for (InstructionId id = 0; id < plan_.gate; ++id) {
      if (is_transfer(plan_.instructions[id].kind)) {
        want(id, op);
        transfers.push_back(id);
      } else if (runs_on_device(plan_.instructions[id])) {
        want(id, op);
        for (InstructionId transfer : transfers) want(id, transfer);
        transfers.clear();
        op = id;
      }
    }
  }

  const Graph& graph_;
  const BucketLayout& layout_;
  const Draft& draft_;
  ByteWaits byte_waits_;
  Plan& plan_;
  const GradientRing ring_;
  std::vector<Slot> slots_;          // in the order of instructions, once they are emitted
  OnLanes last_backward_ = nowhere;  // each device lane's last before the gate
  std::vector<WantedWait> wanted_;
  std::vector<Position> last_transfer_;  // by bucket
  // By lifetime. Of several prefetches, or offloads, the first and the last.
  std::vector<InstructionId> prefetch_of_, last_prefetch_of_, first_offload_of_, offload_of_;
  std::vector<OnLanes> first_use_, last_before_update_, last_use_;
};

}  // namespace

void make_instructions(const Graph& graph, const BucketLayout& layout, const Draft& draft,
                       ByteWaits byte_waits, Plan& plan) {
  Assembler(graph, layout, draft, byte_waits, plan).run();
}

}  // namespace stowage
