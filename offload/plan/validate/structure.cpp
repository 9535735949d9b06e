#include "offload/plan/validate/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "src/graph/cost.h"

namespace stowage::validation {
namespace {

// --- buckets

bool fits(Bytes offset, Bytes bytes, Bytes room) { return bytes <= room && offset <= room - bytes; }

// Returns whether the host keeps the tensor from step to step, or reads and writes it by its address. The
// gradient ring has no bytes for such a tensor: it may hold a part of a bucket alone.
bool is_kept_on_host(const Graph& graph, TensorId id) {
  const TensorKind kind = graph.kind_of(id);
  return kind == TensorKind::parameter || kind == TensorKind::optimizer_state || kind == TensorKind::input ||
         id == graph.loss || id == graph.clip;
}

// Checks a bucket in the gradient ring, which is for gradients that transfers move.
void check_ring_place(const Plan& plan, BucketId id, Report& report) {
  const Bucket& bucket = plan.buckets[id];
  if (!bucket.in_ring()) return;
  const BucketPlace& place = *bucket.place_in(MemoryId::host);
  const Bytes offset = *place.ring_offset;
  if (!plan.optimizer_in_backward || bucket.kind != TensorKind::gradient || !bucket.pinned())
    report.add(fmt::format("{} has bytes of the gradient ring, which are not for it", report.bucket(id)));
  const bool is_aligned = offset % most_tensor_alignment == 0 && place.ring_span % most_tensor_alignment == 0;
  if (!fits(offset, bucket.ring_bytes(), plan.ring_bytes) || !is_aligned)
    report.add(fmt::format("{} ({} bytes) cannot stand at byte {} of the gradient ring of {} bytes",
                           report.bucket(id), bucket.ring_bytes(), offset, plan.ring_bytes));
}

// Checks that the bucket has at most one place in each memory, and none in a memory with an arena, where
// lifetimes have their places.
void check_places(const Bucket& bucket, BucketId id, Report& report) {
  for (const BucketPlace& place : bucket.places) {
    if (static_cast<std::size_t>(place.memory) >= memory_table.size() || row_of(place.memory).has_arena) {
      report.add(fmt::format("{} has a place for the run in memory {}", report.bucket(id),
                             static_cast<int>(place.memory)));
    } else if (bucket.place_in(place.memory) != &place) {
      report.add(fmt::format("{} has two places in {} memory", report.bucket(id), row_of(place.memory).name));
    }
  }
}

void place_tensors(const Graph& graph, const Plan& plan, Places& places, Report& report) {
  for (BucketId id = 0; id < plan.buckets.size() && !report.is_full(); ++id) {
    const Bucket& bucket = plan.buckets[id];
    if (bucket.tensors.empty()) report.add(fmt::format("{} holds no tensor", report.bucket(id)));
    check_places(bucket, id, report);
    check_ring_place(plan, id, report);
    for (const BucketTensor& member : bucket.tensors) {
      if (member.tensor >= graph.tensors.size()) {
        report.add(fmt::format("{} holds {}", report.bucket(id), report.tensor(member.tensor)));
        continue;
      }
      const Tensor& tensor = graph.tensor(member.tensor);
      if (places.bucket[member.tensor] != no_id) {
        report.add(fmt::format("tensor {} is in two buckets, {} and {}", report.tensor(member.tensor),
                               report.bucket(places.bucket[member.tensor]), report.bucket(id)));
      }
      const Bytes alignment = tensor_alignment(tensor.bytes());
      if (!fits(member.offset, tensor.bytes(), bucket.bytes) || member.offset % alignment != 0) {
        report.add(
            fmt::format("tensor {} ({} bytes at offset {}) does not fit in {} ({} bytes) at a multiple of {}",
                        report.tensor(member.tensor), tensor.bytes(), member.offset, report.bucket(id),
                        bucket.bytes, alignment));
      }
      if (bucket.in_ring() && is_kept_on_host(graph, member.tensor)) {
        report.add(fmt::format("{} has bytes of the gradient ring and holds {}, which is no gradient",
                               report.bucket(id), report.tensor(member.tensor)));
      }
      places.bucket[member.tensor] = id;
      places.offset[member.tensor] = member.offset;
    }
  }
  const std::vector<std::vector<TensorId>> slices = graph.slices();
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const bool by_slices = !slices[id].empty() && graph.tensor(id).kind == TensorKind::optimizer_state;
    if (by_slices && places.bucket[id] != no_id)
      report.add(fmt::format("{} holds {}, of which each slice has its own place",
                             report.bucket(places.bucket[id]), report.tensor(id)));
    if (!by_slices && places.bucket[id] == no_id)
      report.add(fmt::format("tensor {} is in no bucket", report.tensor(id)));
  }
}

bool is_inside_its_whole(const Graph& graph, TensorId id) {
  return graph.is_slice(id) && graph.kind_of(id) != TensorKind::optimizer_state;
}

void check_slices(const Graph& graph, const Places& places, Report& report) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (!is_inside_its_whole(graph, id)) continue;
    const TensorId whole = graph.whole_of(id);
    if (places.bucket[id] != places.bucket[whole] ||
        places.offset[id] != places.offset[whole] + graph.offset_in_whole(id)) {
      report.add(fmt::format("the slice {} does not stand where its rows of {} are", report.tensor(id),
                             report.tensor(whole)));
    }
  }
}

// Returns a leader for each tensor. Tensors joined by an alias, directly or through others, have
// the same leader.
std::vector<TensorId> alias_leaders(const Graph& graph) {
  std::vector<TensorId> leader(graph.tensors.size());
  std::iota(leader.begin(), leader.end(), 0U);
  const auto find = [&leader](TensorId id) {
    while (leader[id] != id) id = leader[id] = leader[leader[id]];
    return id;
  };
  for (const Op& op : graph.ops)
    for (const Alias& alias : op.may_alias) leader[find(op.writes[alias.write])] = find(op.reads[alias.read]);
  for (TensorId id = 0; id < leader.size(); ++id) leader[id] = find(id);
  return leader;
}

void check_aliases(const Graph& graph, const Places& places, Report& report) {
  for (const Op& op : graph.ops) {
    for (const Alias& alias : op.may_alias) {
      const TensorId written = op.writes[alias.write];
      const TensorId read = op.reads[alias.read];
      if (places.bucket[written] != places.bucket[read] || places.offset[written] != places.offset[read]) {
        report.add(fmt::format("op '{}' works on {} in place, but its result {} has other bytes", op.name,
                               report.tensor(read), report.tensor(written)));
      }
    }
  }
}

// Returns whether two partial sums may follow one another in the same bytes. check_values finds out whether
// each sum is there when it is read.
bool may_take_turns(const Graph& graph, const BucketTensor& a, const BucketTensor& b) {
  const Tensor& first = graph.tensor(a.tensor);
  const Tensor& second = graph.tensor(b.tensor);
  return graph.gradient_groups > 1 && first.kind == TensorKind::gradient && second.kind == first.kind &&
         a.offset == b.offset && first.bytes() == second.bytes();
}

void check_apart(const Graph& graph, const Plan& plan, Report& report) {
  const std::vector<TensorId> leader = alias_leaders(graph);
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    if (report.is_full()) return;
    std::vector<BucketTensor> members = plan.buckets[id].tensors;
    std::sort(members.begin(), members.end(),
              [](const BucketTensor& a, const BucketTensor& b) { return a.offset < b.offset; });
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Bytes end = members[i].offset + graph.tensor(members[i].tensor).bytes();
      if (is_inside_its_whole(graph, members[i].tensor)) continue;  // the whole tensor is checked instead
      for (std::size_t k = i + 1; k < members.size() && members[k].offset < end; ++k) {
        if (is_inside_its_whole(graph, members[k].tensor)) continue;
        if (leader[members[i].tensor] == leader[members[k].tensor]) continue;
        if (may_take_turns(graph, members[i], members[k])) continue;
        if (report.is_full()) return;
        report.add(fmt::format("tensors {} and {} overlap in {}, and no alias joins them",
                               report.tensor(members[i].tensor), report.tensor(members[k].tensor),
                               report.bucket(id)));
      }
    }
  }
}

// --- instructions

void check_op_fields(const Graph& graph, const Plan& plan, InstructionId id, Report& report) {
  const Instruction& instruction = plan.instructions[id];
  if (instruction.op >= graph.ops.size()) {
    report.add(fmt::format("{} has no op of the graph", report.instruction(id)));
  } else if (is_collective(graph.op(instruction.op)) && instruction.lane != LaneRole::peer) {
    report.add(
        fmt::format("{} exchanges bytes with other ranks, and is not on the peer lane: two ranks may come "
                    "to it in different orders",
                    report.instruction(id)));
  }
  if (instruction.kind != InstructionKind::speculate && instruction.part != ByteRange{}) {
    report.add(fmt::format("{} has a part of a bucket to move", report.instruction(id)));
  }
  if (instruction.lifetime != no_id) {
    report.add(fmt::format("{} has the lifetime of a transfer", report.instruction(id)));
  }
  for (const LifetimeId use : instruction.uses) {
    if (use >= plan.lifetimes.size()) {
      report.add(fmt::format("{} uses {}", report.instruction(id), report.lifetime(use)));
    }
  }
  if (!runs_on_device(instruction) && !instruction.uses.empty()) {
    report.add(fmt::format("{} uses device bytes on the host", report.instruction(id)));
  }
}

void check_transfer_fields(const Plan& plan, InstructionId id, Report& report) {
  const Instruction& instruction = plan.instructions[id];
  if (instruction.lifetime >= plan.lifetimes.size()) {
    report.add(fmt::format("{} moves {}", report.instruction(id), report.lifetime(instruction.lifetime)));
    return;
  }
  if (!instruction.uses.empty() || instruction.op != no_id) {
    report.add(fmt::format("{} has operands of an op", report.instruction(id)));
  }
  const BucketId bucket = plan.lifetimes[instruction.lifetime].bucket;
  if (bucket >= plan.buckets.size()) return;
  const ByteRange& part = instruction.part;
  if (part.begin > part.end || part.end > plan.buckets[bucket].bytes || (part.end == 0 && part.begin != 0)) {
    report.add(fmt::format("{} moves bytes {} to {}, which {} has not", report.instruction(id), part.begin,
                           part.end, report.bucket(bucket)));
  }
  if (!plan.buckets[bucket].on_host() || !plan.buckets[bucket].pinned()) {
    report.add(fmt::format("{} needs a pinned place on the host, which {} has not", report.instruction(id),
                           report.bucket(bucket)));
  }
}

// Checks that each speculated update has an undo record of its own, of the size that its kernel needs.
void check_records(const Graph& graph, const Plan& plan, Report& report) {
  std::vector<InstructionId> speculations;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const auto& [kind, lane, op, lifetime, uses, waits, record] = plan.instructions[id];
    if (kind != InstructionKind::speculate || op >= graph.ops.size()) continue;
    const Bytes needed = undo_bytes(graph, graph.op(op));
    if (needed == 0) {
      report.add(
          fmt::format("{} speculates what is no update, or cannot be taken back", report.instruction(id)));
    } else if (record.begin > record.end || record.end > plan.undo_bytes || record.bytes() != needed) {
      report.add(fmt::format("{} has the undo record {} to {} of {} bytes, but needs {} bytes",
                             report.instruction(id), record.begin, record.end, plan.undo_bytes, needed));
    }
    speculations.push_back(id);
  }
  const auto part = [&plan](InstructionId id) -> const ByteRange& { return plan.instructions[id].part; };
  std::stable_sort(speculations.begin(), speculations.end(),
                   [&](InstructionId a, InstructionId b) { return part(a).begin < part(b).begin; });
  for (std::size_t i = 1; i < speculations.size(); ++i) {
    const auto [first, second] = std::minmax(speculations[i - 1], speculations[i]);
    if (part(speculations[i]).begin < part(speculations[i - 1]).end)
      report.add(fmt::format("{} shares bytes of its undo record with {}", report.instruction(second),
                             report.instruction(first)));
  }
}

void check_waits(const Plan& plan, InstructionId id, Report& report) {
  for (const Wait& wait : plan.instructions[id].waits) {
    if (report.is_full()) return;
    if (wait.instruction >= plan.instructions.size() || wait.steps_back > 1) {
      report.add(fmt::format("{} waits for {}, {} steps back", report.instruction(id),
                             report.instruction(wait.instruction), wait.steps_back));
    }
  }
}

// --- lifetimes

void check_uses(const Graph& graph, const Plan& plan, const Places& places, InstructionId id,
                Report& report) {
  const Instruction& instruction = plan.instructions[id];
  const Op& op = graph.op(instruction.op);
  std::vector<TensorId> operands = op.reads;
  operands.insert(operands.end(), op.writes.begin(), op.writes.end());
  std::vector<BucketId> used;
  for (const LifetimeId use : instruction.uses) {
    const BucketId bucket = plan.lifetimes[use].bucket;
    if (std::find(used.begin(), used.end(), bucket) != used.end()) {
      report.add(fmt::format("{} uses two lifetimes of {}", report.instruction(id), report.bucket(bucket)));
    }
    used.push_back(bucket);
    const bool needed = std::any_of(operands.begin(), operands.end(),
                                    [&](TensorId operand) { return places.bucket[operand] == bucket; });
    if (!needed) {
      report.add(fmt::format("{} uses {}, which holds no operand of it", report.instruction(id),
                             report.lifetime(use)));
    }
  }
  for (const TensorId operand : operands) {
    if (std::find(used.begin(), used.end(), places.bucket[operand]) == used.end()) {
      report.add(fmt::format("{} uses no lifetime of {}, where its operand {} is", report.instruction(id),
                             report.bucket(places.bucket[operand]), report.tensor(operand)));
    }
  }
}

void check_interval(const Plan& plan, LifetimeId id, Position positions, Report& report) {
  const Lifetime& lifetime = plan.lifetimes[id];
  const Bucket& bucket = plan.buckets[lifetime.bucket];
  if (lifetime.first < 0 || lifetime.first >= lifetime.last || lifetime.last > positions) {
    report.add(fmt::format("{} has the interval [{}, {}) in {} positions", report.lifetime(id),
                           lifetime.first, lifetime.last, positions));
  }
  const bool resident = bucket.residency == Residency::resident;
  if (resident != (lifetime.end == no_id)) {
    report.add(
        fmt::format("{} {}", report.lifetime(id), resident ? "is resident but has an end" : "has no end"));
  }
  if (resident && (lifetime.first != 0 || lifetime.last != positions)) {
    report.add(fmt::format("{} is resident but does not span the step", report.lifetime(id)));
  }
  if (bucket.residency == Residency::host) {
    report.add(fmt::format("{} is on the device, but the bucket's residency is host", report.lifetime(id)));
  }
}

void check_positions(const Plan& plan, Report& report) {
  Position position = 0;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    if (!runs_on_device(plan.instructions[id])) continue;
    for (const LifetimeId use : plan.instructions[id].uses) {
      const Lifetime& lifetime = plan.lifetimes[use];
      if (position < lifetime.first || position >= lifetime.last) {
        report.add(fmt::format("{} at position {} uses {} outside its interval [{}, {})",
                               report.instruction(id), position, report.lifetime(use), lifetime.first,
                               lifetime.last));
      }
    }
    ++position;
  }
}

void check_residents(const Plan& plan, Report& report) {
  std::vector<int> lifetimes(plan.buckets.size(), 0);
  for (const Lifetime& lifetime : plan.lifetimes) ++lifetimes[lifetime.bucket];
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    if (plan.buckets[id].residency == Residency::resident && lifetimes[id] != 1) {
      report.add(fmt::format("{} is resident but has {} lifetimes", report.bucket(id), lifetimes[id]));
    }
  }
}

}  // namespace

Places check_buckets(const Graph& graph, const Plan& plan, Report& report) {
  Places places;
  places.bucket.assign(graph.tensors.size(), no_id);
  places.offset.assign(graph.tensors.size(), 0);
  place_tensors(graph, plan, places, report);
  if (!report.empty()) return places;
  check_slices(graph, places, report);
  check_aliases(graph, places, report);
  check_apart(graph, plan, report);
  return places;
}

void check_ids(const Graph& graph, const Plan& plan, Report& report) {
  if (!std::has_single_bit(plan.alignment) || plan.alignment < most_tensor_alignment) {
    report.add(
        fmt::format("the alignment {} is no power of two from {} up", plan.alignment, most_tensor_alignment));
    return;
  }
  if (plan.gate != no_id && plan.gate >= plan.instructions.size()) {
    report.add(fmt::format("the gate is {}", report.instruction(plan.gate)));
  }
  for (LifetimeId id = 0; id < plan.lifetimes.size() && !report.is_full(); ++id) {
    const Lifetime& lifetime = plan.lifetimes[id];
    if (lifetime.bucket >= plan.buckets.size() ||
        (lifetime.end != no_id && lifetime.end >= plan.instructions.size())) {
      report.add(fmt::format("{} ends with {}", report.lifetime(id), report.instruction(lifetime.end)));
    }
  }
  for (InstructionId id = 0; id < plan.instructions.size() && !report.is_full(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (!runs_on(instruction.kind, instruction.lane)) {
      report.add(fmt::format("{} is on the wrong lane", report.instruction(id)));
    }
    if (is_transfer(instruction.kind)) {
      check_transfer_fields(plan, id, report);
    } else {
      check_op_fields(graph, plan, id, report);
    }
    check_waits(plan, id, report);
  }
  check_records(graph, plan, report);
}

void check_places_in_arena(const Plan& plan, Report& report) {
  for (LifetimeId id = 0; id < plan.lifetimes.size() && !report.is_full(); ++id) {
    const Lifetime& lifetime = plan.lifetimes[id];
    if (lifetime.offset % plan.alignment != 0)
      report.add(fmt::format("{} stands at {}, no multiple of {}", report.lifetime(id), lifetime.offset,
                             plan.alignment));
    if (!fits(lifetime.offset, plan.buckets[lifetime.bucket].bytes, plan.device_peak_bytes))
      report.add(
          fmt::format("{} ends past the arena of {} bytes", report.lifetime(id), plan.device_peak_bytes));
  }
}

void check_lifetimes(const Graph& graph, const Plan& plan, const Places& places, Report& report) {
  const auto positions =
      static_cast<Position>(std::count_if(plan.instructions.begin(), plan.instructions.end(),
                                          [](const Instruction& i) { return runs_on_device(i); }));
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    if (runs_on_device(plan.instructions[id])) check_uses(graph, plan, places, id, report);
  }
  check_places_in_arena(plan, report);
  for (LifetimeId id = 0; id < plan.lifetimes.size(); ++id) check_interval(plan, id, positions, report);
  check_positions(plan, report);
  check_residents(plan, report);
}

LifetimeId lifetime_of(const Plan& plan, const Places& places, const Instruction& instruction,
                       TensorId tensor) {
  for (const LifetimeId use : instruction.uses) {
    if (plan.lifetimes[use].bucket == places.bucket[tensor]) return use;
  }
  return no_id;
}

}  // namespace stowage::validation
