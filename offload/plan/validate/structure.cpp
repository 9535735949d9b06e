#include "offload/plan/validate/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "src/graph/cost.h"

namespace stowage::validation {
namespace {

// --- instructions

void check_op_fields(const Graph& graph, const Plan& plan, InstructionId id, Report& report) {
  const Instruction& instruction = plan.instructions[id];
  if (instruction.op >= graph.ops.size()) {
    report.add(fmt::format("{} has no op of the graph", report.instruction(id)));
  } else if ((is_collective(graph.op(instruction.op)) || is_between_stages(graph.op(instruction.op))) &&
             instruction.lane != LaneRole::peer) {
    report.add(
        fmt::format("{} exchanges bytes with other devices, and is not on the peer lane: two of them may "
                    "come to it in different orders",
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
