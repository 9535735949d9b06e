#include "offload/plan/schedule/instructions.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "offload/plan/schedule/byte_owners.h"
#include "offload/plan/schedule/gradient_ring.h"
#include "offload/plan/schedule/slots.h"
#include "offload/plan/schedule/waits.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

// The lanes that compute on the device. Positions number their instructions.
constexpr std::array device_lanes{LaneRole::compute, LaneRole::peer};
std::size_t number_of(LaneRole device_lane) { return device_lane == LaneRole::compute ? 0 : 1; }
// One instruction of each device lane, or no_id.
using OnLanes = std::array<InstructionId, device_lanes.size()>;
constexpr OnLanes nowhere{no_id, no_id};
InstructionId latest(const OnLanes& ids) {
  InstructionId latest = no_id;
  for (const InstructionId id : ids)
    if (id != no_id && (latest == no_id || id > latest)) latest = id;
  return latest;
}

class Assembler {
 public:
  Assembler(const Graph& graph, const BucketLayout& layout, const Draft& draft, const GradientRing& ring,
            ByteWaits byte_waits, Plan& plan)
      : graph_(graph),
        layout_(layout),
        draft_(draft),
        byte_waits_(byte_waits),
        plan_(plan),
        ring_(ring),
        slots_(make_slots(graph, layout, draft, ring_)),
        prefetch_of_(draft.lifetimes.size(), no_id),
        last_prefetch_of_(draft.lifetimes.size(), no_id),
        first_offload_of_(draft.lifetimes.size(), no_id),
        offload_of_(draft.lifetimes.size(), no_id),
        first_use_(draft.lifetimes.size(), nowhere),
        last_before_update_(draft.lifetimes.size(), nowhere),
        last_use_(draft.lifetimes.size(), nowhere) {}

  void run() {
    emit();
    index();
    add_value_waits();
    if (layout_.has_peers) want_lane_waits(layout_, draft_, plan_, wanted_);
    add_early_waits();
    add_ring_waits();
    if (byte_waits_ == ByteWaits::by_address) add_reuse_waits();
    if (byte_waits_ == ByteWaits::by_amount) add_amount_waits();
    add_host_waits();
    reduce_waits(plan_, wanted_);
  }

 private:
  void emit() {
    plan_.instructions.clear();
    plan_.instructions.reserve(slots_.size());
    for (const Slot& slot : slots_) {
      if (slot.place == Slot::Place::gate) plan_.gate = static_cast<InstructionId>(plan_.instructions.size());
      plan_.instructions.push_back({slot.kind, slot.lane, slot.op, slot.lifetime});
      plan_.instructions.back().part = slot.part;
      if (slot.kind == InstructionKind::speculate)
        plan_.undo_bytes = std::max(plan_.undo_bytes, slot.part.end);
      plan_.optimizer_in_backward |=
          draft_.early_updates == EarlyUpdates::final && slot.place == Slot::Place::early;
      if (byte_waits_ != ByteWaits::by_address) continue;
      const std::span<const LifetimeId> uses = uses_of(slot);
      plan_.instructions.back().uses.assign(uses.begin(), uses.end());
    }
  }
  std::span<const LifetimeId> uses_of(const Slot& slot) const {
    return slot.place == Slot::Place::compute ? draft_.uses.at(slot.position) : std::span<const LifetimeId>{};
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

  // A use waits for its prefetch, an offload for the last use before it. A prefetch waits for the offload
  // that made the host's copy; the prefetch of the clip scale waits for the gate. The gate waits for all
  // offloads and for the last backward instruction of each device lane.
  void add_value_waits() {
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
      for (const InstructionId first : first_use_[id]) want(first, last_prefetch_of_[id]);
      want_each(first_offload_of_[id], last_before_update_[id]);
      if (offload_of_[id] != no_id) want(plan_.gate, offload_of_[id]);
    }
    want_each(plan_.gate, last_backward_);
    std::vector<InstructionId> host_copy(layout_.buckets.size(), no_id);  // each bucket's last offload so far
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
    return slots_[id].place == Slot::Place::early && runs_on_host(plan_.instructions[id]);
  }

  // An early update waits for its gradient's offload, and for every prefetch that reads the weight that it
  // changes. The update of a slice waits for the transfers that move this slice.
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

  // The first offload of a gradient in the ring waits for the updates by the previous owners of its bytes. If
  // the gradient leaves by slices, a later slice waits for the update by the slice that had its bytes.
  void add_ring_waits() {
    if (ring_.turns.empty()) return;
    // Updates by parameter bucket and offloads by gradient bucket, both in the plan's order. A parameter in
    // slices has an update for each slice, and its gradient an offload for each if it leaves by slices.
    std::vector<std::vector<InstructionId>> updates(layout_.buckets.size()), offloads(layout_.buckets.size());
    for (InstructionId id = 0; id < plan_.gate; ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (is_early(id)) updates[parameters_of(graph_, layout_, instruction.op)].push_back(id);
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

  // The first instruction of a lifetime waits for the last uses of each previous owner of its bytes. At the
  // step's begin the previous owners are lifetimes of the step before. Earlier owners need no wait of their
  // own, since the previous owners have waited for them.
  void add_reuse_waits() {
    std::vector<LifetimeId> order;
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id)
      if (plan_.lifetimes[id].end != no_id) order.push_back(id);
    std::stable_sort(order.begin(), order.end(), [&](LifetimeId a, LifetimeId b) {
      return draft_.lifetimes[a].first < draft_.lifetimes[b].first;
    });
    ByteOwners owners;
    for (LifetimeId id : order) owners.take(begin_of(id), end_of(id), id, [](LifetimeId) {});
    std::vector<std::uint8_t> seen(draft_.lifetimes.size(), 0);  // 1 for lifetimes already met in this step
    for (LifetimeId id : order) {
      owners.take(begin_of(id), end_of(id), id, [&](LifetimeId before) {
        want_each(first_of(id), last_use_[before], seen[before] ? 0 : 1);
        want(first_of(id), offload_of_[before], seen[before] ? 0 : 1);
      });
      seen[id] = 1;
    }
  }
  // Adds waits as if bytes had no addresses: a lifetime takes the bytes that became free first.
  void add_amount_waits() {
    const std::vector<LifetimeId> firsts = by_position(&DraftLifetime::first);
    const std::vector<LifetimeId> lasts = by_position(&DraftLifetime::last);
    std::size_t left = 0, taken_from = 0;
    Bytes rest =
        most_live(firsts, lasts);  // bytes of `owner` not taken again yet; at first bytes without an owner
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

  // A prefetch waits for the host update of its value in the step before. An offload waits for the host
  // update of the step before that reads the bytes which the offload overwrites. A transfer of slices waits
  // for the updates of these slices alone.
  void add_host_waits() {
    // Last host steps, by bucket and slice.
    std::vector<std::vector<InstructionId>> last_steps(layout_.buckets.size());
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

  const Graph& graph_;
  const BucketLayout& layout_;
  const Draft& draft_;
  ByteWaits byte_waits_;
  Plan& plan_;
  const GradientRing& ring_;
  const std::vector<Slot> slots_;    // slot of each instruction
  OnLanes last_backward_ = nowhere;  // each device lane's last instruction before the gate
  std::vector<WantedWait> wanted_;
  // By lifetime. If a lifetime has several prefetches or offloads: the first and the last.
  std::vector<InstructionId> prefetch_of_, last_prefetch_of_, first_offload_of_, offload_of_;
  std::vector<OnLanes> first_use_, last_before_update_, last_use_;
};

}  // namespace

void make_instructions(const Graph& graph, const BucketLayout& layout, const Draft& draft,
                       const GradientRing& ring, ByteWaits byte_waits, Plan& plan) {
  Assembler(graph, layout, draft, ring, byte_waits, plan).run();
}

}  // namespace stowage
