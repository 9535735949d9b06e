#include "offload/plan/bound_program.h"

#include <algorithm>
#include <map>

#include "offload/plan/lane_speeds.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

// A parameter with its state, its gradient and its update.
struct Parameter {
  Bytes bytes = 0, state_bytes = 0;
  Bytes gradient_bytes = 0;                // made behind the turn
  Bytes gate_bytes = 0;                    // of the gradient, wherever it is made
  double host_update = 0, update = 0;      // seconds
  bool in_front = false, in_back = false;  // read there
};

// What a transfer costs the other lanes of a machine whose lanes slow each other: whichever lanes work, the
// times that pass on a lane and these shares of others' come to no more than the time that passes.
struct Sharing {
  double of_in = 0, of_out = 0;      // of a prefetch's time, to the offloads'; and the other way round
  double host_seconds_per_byte = 0;  // of any copy, to the host's
};

double share(LaneMask working, LaneRole lane, const LaneSpeeds& speeds) {
  return (working & mask_of(lane)) != 0 ? speeds.of(working, lane) : 0;
}

Sharing sharing_of(const Machine& machine, BoundLinks links) {
  const LaneSpeeds speeds(machine);
  if (!speeds.shared()) return {};
  Sharing sharing{1, 1, as_alone};
  for (LaneMask working = 0; working < LaneMask{1} << lane_roles; ++working) {
    const double in = share(working, LaneRole::h2d, speeds), out = share(working, LaneRole::d2h, speeds);
    const double copied = in * machine.h2d.bytes_per_second + out * machine.d2h.bytes_per_second;
    if (copied <= 0) continue;
    sharing.host_seconds_per_byte =
        std::min(sharing.host_seconds_per_byte, (1 - share(working, LaneRole::host, speeds)) / copied);
    if (in > 0) sharing.of_in = std::min(sharing.of_in, (1 - out) / in);
    if (out > 0) sharing.of_out = std::min(sharing.of_out, (1 - in) / out);
  }
  if (links == BoundLinks::apart) sharing.of_in = sharing.of_out = 0;
  return sharing;
}

class ProgramBuilder {
 public:
  ProgramBuilder(const Problem& problem, Bytes budget, BoundLinks links)
      : problem_(problem),
        graph_(*problem.graph),
        budget_(budget),
        sharing_(sharing_of(*problem.machine, links)) {
    program_.bytes = std::max(1.0, static_cast<double>(std::min(budget, total_bytes())));
    find_moments();
    for (std::size_t m = 0; m < bound_moments; ++m)
      program_.shares.room.push_back(budget == unlimited
                                         ? static_cast<double>(total_bytes())
                                         : static_cast<double>(budget) - operand_bytes(moments_[m]));
  }

  BoundProgram build() {
    add_ops();
    add_parameters();
    add_activations();
    merge();
    normalise();
    return std::move(program_);
  }

 private:
  const Machine& machine() const { return *problem_.machine; }

  Bytes total_bytes() const {
    Bytes sum = 0;
    for (const Bucket& bucket : problem_.layout.buckets) sum += bucket.bytes;
    return sum;
  }
  std::vector<TensorId> groups(std::vector<TensorId> ids) const {
    for (TensorId& id : ids) id = group_of(id);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }
  std::vector<TensorId> operands(OpId op) const {
    std::vector<TensorId> ids = graph_.op(op).reads;
    ids.insert(ids.end(), graph_.op(op).writes.begin(), graph_.op(op).writes.end());
    return groups(std::move(ids));
  }
  double bytes_of(const std::vector<TensorId>& ids) const {
    double sum = 0;
    for (TensorId id : ids) sum += static_cast<double>(graph_.tensor(id).bytes());
    return sum;
  }
  TensorId group_of(TensorId id) const { return problem_.analysis.group[id]; }
  double operand_bytes(OpId op) const { return op == no_id ? 0 : bytes_of(operands(op)); }

  void find_moments() {
    std::uint32_t turn = no_id;
    for (const Op& op : graph_.ops)
      if (op.phase == Phase::forward) turn = op.unit;
    moments_.fill(no_id);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) continue;
      if (graph_.op(op).unit == turn) keep_larger(moments_[bound_turn], op);
      keep_larger(moments_[bound_largest], op);
    }
  }
  void keep_larger(OpId& largest, OpId op) const {
    if (largest == no_id || operand_bytes(op) > operand_bytes(largest)) largest = op;
  }
  bool is_operand(BoundMoment moment, TensorId id) const {
    if (moments_[moment] == no_id) return false;
    const std::vector<TensorId> ids = operands(moments_[moment]);
    return std::binary_search(ids.begin(), ids.end(), group_of(id));
  }
  // Beside the op's operands.
  ShareMemory beside(TensorId id) const {
    ShareMemory memory{};
    for (BoundMoment moment : {bound_turn, bound_largest})
      memory[moment] = is_operand(moment, id) ? 0 : static_cast<double>(graph_.tensor(id).bytes());
    return memory;
  }

  // Before the instant of the turn: the end of its op if that is forward's, its begin otherwise. With one
  // micro-batch program order is the plan's. Of several the turns are many, and forward stands for what is
  // before them.
  bool in_front(OpId op) const {
    const OpId turn = moments_[bound_turn];
    if (graph_.micro_batches > 1 || turn == no_id) return graph_.op(op).phase == Phase::forward;
    return op < turn || (op == turn && graph_.op(op).phase == Phase::forward);
  }
  void add_ops() {
    for (OpId op = 0; op < graph_.ops.size(); ++op)
      if (graph_.op(op).phase != Phase::update)
        add_op(op, in_front(op) ? program_.shares.fixed.front : program_.shares.fixed.back);
  }
  // Its time, and how much of it each link cannot use.
  // In: a transfer that moves bytes while the op runs is of no operand (the op has waited for those, and its
  // outputs are not brought in), and its first use is a later op. So when the op ends, all such transfers'
  // bytes are taken at once, beside the operands: their sum is at most `budget` less those, and so are the
  // parts of them that moved meanwhile. Out: what leaves while the op runs was used before it and is given
  // back after the transfer, so that all of it is taken when the op begins; it is nothing that the op writes,
  // in place or not. What it reads may leave, though no plan of ours does that.
  // So of the op's c seconds at most room/rate are the link's, and a phase whose ops are busy or not, but not
  // two at once, lasts no less than bytes/rate + sum of max(0, c - room/rate). A replay is one more op of
  // backward. Bytes that stay for the whole step, rounding to the alignment and latencies only take from the
  // room or add to the time; what host updates delay, too. Groups (may_alias) are counted once.
  void add_op(OpId op, std::array<double, share_lanes>& lanes) const {
    const double seconds = op_seconds(graph_.op(op), machine());
    lanes[share_compute] += seconds;
    if (budget_ == unlimited) return;
    const auto budget = static_cast<double>(budget_);
    auto idle = [&](const Link& link, double shared, double taken) {
      return std::max(0.0, seconds * (1 - shared) - std::max(0.0, budget - taken) / link.bytes_per_second);
    };
    lanes[share_h2d] += idle(machine().h2d, sharing_.of_out, operand_bytes(op));
    lanes[share_d2h] += idle(machine().d2h, sharing_.of_in, bytes_of(groups(graph_.op(op).writes)));
  }
  void add_in(Bytes bytes, std::array<double, share_lanes>& lanes) const {
    const double seconds = static_cast<double>(bytes) / machine().h2d.bytes_per_second;
    lanes[share_h2d] += seconds;
    lanes[share_d2h] += seconds * sharing_.of_in;
    lanes[share_host] += static_cast<double>(bytes) * sharing_.host_seconds_per_byte;
  }
  void add_out(Bytes bytes, std::array<double, share_lanes>& lanes) const {
    const double seconds = static_cast<double>(bytes) / machine().d2h.bytes_per_second;
    lanes[share_d2h] += seconds;
    lanes[share_h2d] += seconds * sharing_.of_out;
    lanes[share_host] += static_cast<double>(bytes) * sharing_.host_seconds_per_byte;
  }

  void add_parameters() {
    std::map<TensorId, Parameter> parameters;
    std::vector<std::uint8_t> made_in_back(graph_.tensors.size(), 0);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) {
        add_update(graph_.op(op), made_in_back, parameters);
        continue;
      }
      for (TensorId id : graph_.op(op).writes) made_in_back[id] = !in_front(op);
      for (TensorId id : graph_.op(op).reads)
        if (graph_.tensor(id).kind == TensorKind::parameter)
          (in_front(op) ? parameters[id].in_front : parameters[id].in_back) = true;
    }
    for (const auto& [id, parameter] : parameters) program_.shares.decisions.push_back(decide(id, parameter));
  }
  void add_update(const Op& op, const std::vector<std::uint8_t>& made_in_back,
                  std::map<TensorId, Parameter>& parameters) const {
    for (TensorId written : op.writes) {
      if (graph_.tensor(written).kind != TensorKind::parameter) continue;
      Parameter& parameter = parameters[written];
      parameter.bytes = graph_.tensor(written).bytes();
      parameter.host_update = host_seconds(op, machine());
      parameter.update = op_seconds(op, machine());
      for (TensorId id : op.writes)
        if (graph_.tensor(id).kind == TensorKind::optimizer_state)
          parameter.state_bytes += graph_.tensor(id).bytes();
      for (TensorId id : op.reads) {
        if (graph_.tensor(id).kind != TensorKind::gradient) continue;
        parameter.gate_bytes = graph_.tensor(id).bytes();
        if (made_in_back[id]) parameter.gradient_bytes = parameter.gate_bytes;
      }
    }
  }
  ShareDecision decide(TensorId id, const Parameter& parameter) const {
    ShareCost held;
    if (parameter.in_front) {
      add_in(parameter.bytes, held.front);
      held.front[share_host] += parameter.host_update;
    }
    add_out(parameter.gradient_bytes, held.back);
    ShareCost streamed = held;
    if (parameter.in_back) add_in(parameter.bytes, streamed.back);
    held.memory = beside(id);
    held.memory[bound_largest] = 0;
    ShareCost resident;
    resident.front[share_compute] = parameter.update;
    resident.memory = beside(id);
    for (double& memory : resident.memory) memory += static_cast<double>(parameter.state_bytes);
    resident.memory[bound_gate] += static_cast<double>(parameter.bytes + parameter.gate_bytes);
    return {{streamed, held, resident}, 1};
  }

  // An op that makes several items runs once more for all of them: its time counts for the largest.
  void add_activations() {
    find_readers();
    std::map<OpId, const ActivationItem*> largest;
    for (const ActivationItem& item : problem_.items) {
      const ActivationItem*& most = largest[item.writer];
      if (most == nullptr || most->bytes < item.bytes) most = &item;
    }
    for (const ActivationItem& item : problem_.items) {
      if (!crosses_turn(item)) continue;
      ShareCost kept, offloaded, rebuilt;
      // Of micro-batches one after another only those of one are there at its turn: on average so many.
      for (BucketId bucket : item.buckets)
        kept.memory[bound_turn] += beside(problem_.layout.buckets[bucket].tensors.front().tensor)[bound_turn];
      kept.memory[bound_turn] /= static_cast<double>(graph_.micro_batches);
      add_out(item.bytes, offloaded.front);
      add_in(item.bytes, offloaded.back);
      if (largest[item.writer] == &item) add_rebuilding(item.writer, item.bytes, rebuilt.back);
      program_.shares.decisions.push_back({{kept, offloaded, rebuilt}, 1});
    }
  }

  // Made before the turn, read behind it.
  bool crosses_turn(const ActivationItem& item) const {
    return in_front(item.writer) && std::any_of(item.buckets.begin(), item.buckets.end(), [&](BucketId id) {
             return read_in_back_[group_of(problem_.layout.buckets[id].tensors.front().tensor)];
           });
  }
  void find_readers() {
    producer_.assign(graph_.tensors.size(), no_id);
    readers_.assign(graph_.tensors.size(), 0);
    in_item_.assign(graph_.tensors.size(), 0);
    makes_item_.assign(graph_.ops.size(), 0);
    read_in_back_.assign(graph_.tensors.size(), 0);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (!in_front(op))
        for (TensorId id : graph_.op(op).reads) read_in_back_[group_of(id)] = 1;
      if (graph_.op(op).phase != Phase::forward) continue;
      for (TensorId id : graph_.op(op).reads) ++readers_[id];
      for (TensorId id : graph_.op(op).writes) producer_[id] = op;
    }
    for (const ActivationItem& item : problem_.items) {
      makes_item_[item.writer] = 1;
      for (BucketId bucket : item.buckets)
        in_item_[group_of(problem_.layout.buckets[bucket].tensors.front().tensor)] = 1;
    }
  }
  // Of the op, and of what it alone reads and backward does not: to keep or offload that instead of the
  // `bytes` that the op makes from it would save nothing, unless it is smaller.
  void add_rebuilding(OpId op, Bytes bytes, std::array<double, share_lanes>& lanes) const {
    add_op(op, lanes);
    for (TensorId id : graph_.op(op).reads) {
      const OpId producer = producer_[id];
      if (producer == no_id || readers_[id] > 1 || makes_item_[producer]) continue;
      const bool overwritten =
          std::any_of(graph_.op(op).writes.begin(), graph_.op(op).writes.end(),
                      [&](TensorId written) { return group_of(written) == group_of(id); });
      if (overwritten || (!in_item_[group_of(id)] && graph_.tensor(id).bytes() >= bytes))
        add_rebuilding(producer, bytes, lanes);
    }
  }

  // Alike decisions are one.
  void merge() {
    auto key = [](const ShareDecision& decision) {
      std::vector<double> parts;
      for (const ShareCost& cost : decision.options) {
        parts.insert(parts.end(), cost.front.begin(), cost.front.end());
        parts.insert(parts.end(), cost.back.begin(), cost.back.end());
        parts.insert(parts.end(), cost.memory.begin(), cost.memory.end());
      }
      return parts;
    };
    std::map<std::vector<double>, ShareDecision> merged;
    for (ShareDecision& decision : program_.shares.decisions) {
      auto [at, added] = merged.emplace(key(decision), decision);
      if (!added) at->second.count += 1;
    }
    program_.shares.decisions.clear();
    for (auto& [parts, decision] : merged) program_.shares.decisions.push_back(std::move(decision));
  }

  void normalise() {
    program_.seconds = std::max(
        1e-12, program_.shares.fixed.front[share_compute] + program_.shares.fixed.back[share_compute]);
    auto scale = [&](ShareCost& cost) {
      for (double& seconds : cost.front) seconds /= program_.seconds;
      for (double& seconds : cost.back) seconds /= program_.seconds;
      for (double& bytes : cost.memory) bytes /= program_.bytes;
    };
    scale(program_.shares.fixed);
    for (ShareDecision& decision : program_.shares.decisions)
      for (ShareCost& option : decision.options) scale(option);
    for (double& room : program_.shares.room) room = std::max(1e-3, room / program_.bytes);
  }

  const Problem& problem_;
  const Graph& graph_;
  Bytes budget_;
  Sharing sharing_;
  BoundProgram program_;
  std::array<OpId, bound_moments> moments_{};
  std::vector<OpId> producer_;              // by tensor: the forward op that makes it
  std::vector<int> readers_;                // by tensor: forward ops
  std::vector<std::uint8_t> in_item_;       // by group
  std::vector<std::uint8_t> read_in_back_;  // by group: behind the turn
  std::vector<std::uint8_t> makes_item_;    // by op
};

}  // namespace

BoundProgram make_bound_program(const Problem& problem, Bytes device_budget, BoundLinks links) {
  return ProgramBuilder(problem, device_budget, links).build();
}

}  // namespace stowage
