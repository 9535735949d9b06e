#include "offload/plan/validate/passes.h"

#include <fmt/format.h>

#include <map>

namespace stowage::validation {
namespace {

struct Value {
  TensorId tensor = no_id;  // no_id: the bytes are undefined
  std::uint32_t version = 0;
  bool is_speculated = false;  // a speculated update made the value, and its commit has not run yet
  OpId by = no_id;             // the op that made the value on the host
};

// The values of one copy of a bucket, by offset inside it. Tensors joined by an alias have one offset. A
// tensor that is cut is known by its slices alone: it has a value if all its slices have.
using Copy = std::map<Bytes, Value>;

class Memory {
 public:
  Memory(const Graph& graph, const Plan& plan, const Places& places, const Order& order, Report& report)
      : graph_(graph),
        plan_(plan),
        places_(places),
        order_(order),
        report_(report),
        host_(plan.buckets.size()),
        arena_(plan.lifetimes.size()),
        neighbours_(arena_neighbours(plan)),
        ending_(plan.instructions.size()),
        stays_of_(plan.buckets.size()),
        offloads_of_(plan.buckets.size()),
        makers_of_(graph.tensors.size()),
        pieces_(graph.slices()) {
    for (TensorId id = 0; id < graph.tensors.size(); ++id)
      if (pieces_[id].empty()) pieces_[id] = {id};
    for (LifetimeId id = 0; id < plan.lifetimes.size(); ++id) {
      const Lifetime& lifetime = plan.lifetimes[id];
      if (lifetime.end == no_id)
        stays_of_[lifetime.bucket].push_back(id);
      else
        ending_[lifetime.end].push_back(id);
    }
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
      const Instruction& instruction = plan.instructions[id];
      if (instruction.kind == InstructionKind::offload)
        offloads_of_[plan.lifetimes[instruction.lifetime].bucket].push_back(id);
      if (!runs_on_device(instruction)) continue;
      for (const TensorId tensor : graph.op(instruction.op).writes)
        if (makers_of_[tensor].empty() || makers_of_[tensor].back() != id) makers_of_[tensor].push_back(id);
    }
    for (TensorId id = 0; id < graph.tensors.size(); ++id) {
      if (is_piece(id) && lives_across_steps(graph, id)) initialise(id);
    }
  }

  void run(std::uint32_t step) {
    step_ = step;
    for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
      if (graph_.tensor(id).kind == TensorKind::input && on_host(id)) host_at(id) = {id, step};
    }
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      execute(id);
      for (const LifetimeId lifetime : ending_[id]) arena_[lifetime].clear();
    }
    check_step_end();
  }

 private:
  bool is_piece(TensorId id) const { return pieces_[id].front() == id; }
  bool on_host(TensorId id) const { return plan_.buckets[places_.bucket[id]].on_host(); }
  Value& host_at(TensorId id) { return host_[places_.bucket[id]][places_.offset[id]]; }
  Value& arena_at(LifetimeId lifetime, TensorId id) { return arena_[lifetime][places_.offset[id]]; }

  // Residents are loaded before the first step.
  void initialise(TensorId id) {
    if (on_host(id)) host_at(id) = {id, 0};
    for (const LifetimeId lifetime : stays_of_[places_.bucket[id]]) arena_at(lifetime, id) = {id, 0};
  }

  // Clears all other lifetimes that have bytes in common with `lifetime`.
  void take_bytes(LifetimeId lifetime) {
    for (const LifetimeId other : neighbours_[lifetime]) arena_[other].clear();
  }

  void execute(InstructionId id) {
    const Instruction& instruction = plan_.instructions[id];
    switch (instruction.kind) {
      case InstructionKind::launch:
      case InstructionKind::recompute:
        run_on_device(id);
        return;
      case InstructionKind::gate:
        if (id == plan_.gate) check_gate();
        run_on_host(id);
        return;
      case InstructionKind::speculate:
      case InstructionKind::commit:
        runs_on_device(instruction) ? run_on_device(id) : run_on_host(id);
        return;
      case InstructionKind::prefetch:
        take_bytes(instruction.lifetime);
        copy(host_[plan_.lifetimes[instruction.lifetime].bucket], instruction, arena_[instruction.lifetime]);
        return;
      case InstructionKind::offload:
        take_ring_bytes(instruction);
        copy(arena_[instruction.lifetime], instruction, host_[plan_.lifetimes[instruction.lifetime].bucket]);
        return;
    }
  }
  // Clears the values in those bytes of the gradient ring that the offload fills.
  void take_ring_bytes(const Instruction& offload) {
    const Bucket& taker = plan_.buckets[plan_.lifetimes[offload.lifetime].bucket];
    if (!taker.in_ring()) return;
    const ByteRange moved = moved_bytes(plan_, offload);
    const ByteRange taken = bytes_in_ring(taker, moved);
    for (BucketId id = 0; id < plan_.buckets.size(); ++id) {
      if (!plan_.buckets[id].in_ring()) continue;
      for (auto& [offset, value] : host_[id])
        if (overlap(bytes_in_ring(plan_.buckets[id], bytes_of(offset, value)), taken)) value = {};
    }
  }
  static ByteRange bytes_in_ring(const Bucket& bucket, const ByteRange& range) {
    const Bytes begin = *bucket.place_in(MemoryId::host)->ring_offset + bucket.byte_in_ring(range.begin);
    return {begin, begin + range.bytes()};
  }
  static bool overlap(const ByteRange& a, const ByteRange& b) { return a.begin < b.end && b.begin < a.end; }
  // Returns the bytes of a value; an undefined value has none.
  ByteRange bytes_of(Bytes offset, const Value& value) const {
    return {offset, offset + (value.tensor == no_id ? 0 : graph_.tensor(value.tensor).bytes())};
  }
  // Copies the values that the transfer moves as a whole. A value that it moves in part becomes undefined.
  void copy(const Copy& from, const Instruction& transfer, Copy& to) {
    const ByteRange moved = moved_bytes(plan_, transfer);
    for (auto& [offset, value] : to)
      if (overlap(bytes_of(offset, value), moved)) value = {};
    for (const auto& [offset, value] : from)
      if (value.tensor != no_id && moved.begin <= offset && bytes_of(offset, value).end <= moved.end)
        to[offset] = value;
  }

  void run_on_device(InstructionId id) {
    const Instruction& instruction = plan_.instructions[id];
    const Op& op = graph_.op(instruction.op);
    for (const TensorId tensor : op.reads) {
      const LifetimeId use = lifetime_of(plan_, places_, instruction, tensor);
      if (use == no_id) continue;
      for (const TensorId piece : pieces_[tensor])
        check_read(id, piece, arena_at(use, piece), "on the device");
    }
    for (const TensorId tensor : op.writes) {
      const LifetimeId use = lifetime_of(plan_, places_, instruction, tensor);
      if (use == no_id) continue;
      take_bytes(use);
      for (const TensorId piece : pieces_[tensor]) arena_at(use, piece) = result(op, piece);
    }
  }

  // An update before the gate does not look at the clip scale. Values that a speculated update leaves may be
  // read by its commit only.
  void run_on_host(InstructionId id) {
    const Instruction& instruction = plan_.instructions[id];
    const Op& op = graph_.op(instruction.op);
    const bool speculates = instruction.kind == InstructionKind::speculate;
    const bool early = speculates || id < plan_.gate;
    for (const TensorId tensor : op.reads) {
      if ((early && tensor == graph_.clip) || !has_place(id, tensor)) continue;
      for (const TensorId piece : pieces_[tensor]) {
        Value found = host_at(piece);
        if (instruction.kind == InstructionKind::commit && found.is_speculated && found.by == instruction.op)
          found = {piece, step_};
        check_read(id, piece, found, "on the host");
      }
    }
    for (const TensorId tensor : op.writes) {
      if (!has_place(id, tensor)) continue;
      for (const TensorId piece : pieces_[tensor]) {
        host_at(piece) = result(op, piece);
        host_at(piece).is_speculated = speculates;
        host_at(piece).by = instruction.op;
      }
    }
  }
  bool has_place(InstructionId id, TensorId tensor) {
    if (on_host(tensor)) return true;
    report_.add(fmt::format("{} needs {} on the host, where {} has no place", report_.instruction(id),
                            report_.tensor(tensor), report_.bucket(places_.bucket[tensor])));
    return false;
  }

  Value result(const Op& op, TensorId tensor) const {
    const bool updated = op.phase == Phase::update && lives_across_steps(graph_, tensor);
    return {tensor, step_ + (updated ? 1 : 0)};
  }

  void check_read(InstructionId id, TensorId tensor, const Value& found, const std::string& where) {
    const bool never_changes = graph_.kind_of(tensor) == TensorKind::parameter && !graph_.is_trained(tensor);
    if (found.tensor == tensor && found.version == (never_changes ? 0 : step_) && !found.is_speculated)
      return;
    report_.add(fmt::format("{} reads {} {}: {}", report_.instruction(id), report_.tensor(tensor), where,
                            what_is_wrong(id, tensor, found)));
  }

  std::string what_is_wrong(InstructionId id, TensorId tensor, const Value& found) const {
    const TensorKind kind = graph_.kind_of(tensor);
    const std::string lost = kind == TensorKind::gradient ? "gradient lost: " : "";
    if (found.tensor == no_id) return lost + "the value is not there";
    if (found.tensor != tensor)
      return fmt::format("{}{} stands there instead", lost, report_.tensor(found.tensor));
    if (found.is_speculated) return "a speculated update has changed it, and is not committed";
    if (found.version < step_) {
      if (kind == TensorKind::parameter) return "stale parameter, an update is missing";
      return lost + "the value is one of an earlier step";
    }
    if (graph_.op(plan_.instructions[id].op).phase == Phase::update) return "the update is applied twice";
    return "the update of this step has already changed it";
  }

  // Checks that every gradient that an update behind the gate will apply has landed where the update runs,
  // in every timing.
  void check_gate() {
    for (InstructionId id = plan_.gate + 1; id < plan_.instructions.size(); ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (instruction.kind != InstructionKind::commit) continue;
      for (const TensorId tensor : graph_.op(instruction.op).reads) {
        const bool gradient = !lives_across_steps(graph_, tensor) && tensor != graph_.clip;
        if (!gradient) continue;
        for (const TensorId piece : pieces_[tensor]) check_landed(instruction, piece);
      }
    }
  }
  void check_landed(const Instruction& commit, TensorId gradient) {
    const bool on_device = runs_on_device(commit);
    const LifetimeId use = on_device ? lifetime_of(plan_, places_, commit, gradient) : no_id;
    if (on_device ? use == no_id : !on_host(gradient)) return;
    const Value found = on_device ? arena_at(use, gradient) : host_at(gradient);
    if (found.tensor != gradient || found.version != step_) {
      report_.add(fmt::format("gradient lost: {} has not landed {} when the gate, {}, passes",
                              report_.tensor(gradient), on_device ? "on the device" : "on the host",
                              report_.instruction(plan_.gate)));
    }
    const TensorId made = graph_.whole_of(gradient);
    for (const InstructionId id : on_device ? makers_of_[made] : offloads_of_[places_.bucket[gradient]]) {
      if (id >= plan_.gate || order_.before(order_.node(step_, id), order_.node(step_, plan_.gate))) continue;
      report_.add(fmt::format("the gate, {}, does not wait for {}, which lands gradient {}",
                              report_.instruction(plan_.gate), report_.instruction(id),
                              report_.tensor(gradient)));
    }
  }
  void check_step_end() {
    if (graph_.loss != no_id && !reached_host(graph_.loss)) {
      report_.add(fmt::format("the loss {} does not reach the host", report_.tensor(graph_.loss)));
    }
  }
  bool reached_host(TensorId id) {
    if (!on_host(id)) return false;
    const Value value = host_at(id);
    return value.tensor == id && value.version == step_;
  }

  const Graph& graph_;
  const Plan& plan_;
  const Places& places_;
  const Order& order_;
  Report& report_;
  std::vector<Copy> host_;   // the host's copy of each bucket
  std::vector<Copy> arena_;  // the device's copy of each lifetime
  std::vector<std::vector<LifetimeId>> neighbours_;
  std::vector<std::vector<LifetimeId>> ending_;          // lifetimes that end behind each instruction
  std::vector<std::vector<LifetimeId>> stays_of_;        // lifetimes without an end, by bucket
  std::vector<std::vector<InstructionId>> offloads_of_;  // offloads of each bucket
  std::vector<std::vector<InstructionId>> makers_of_;  // by tensor: instructions on the device that write it
  std::vector<std::vector<TensorId>> pieces_;          // by tensor: its slices, or itself
  std::uint32_t step_ = 0;
};

}  // namespace

void check_values(const Graph& graph, const Plan& plan, const Places& places, const Order& order,
                  Report& report) {
  Memory memory(graph, plan, places, order, report);
  for (std::uint32_t step = 0; step < unrolled_steps; ++step) memory.run(step);
}

}  // namespace stowage::validation
