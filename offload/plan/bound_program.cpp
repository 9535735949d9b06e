#include "offload/plan/bound_program.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "offload/plan/bound_moments.h"
#include "offload/plan/step_cuts.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

// With its state, its gradient and its update.
struct Parameter {
  Bytes bytes = 0, state_bytes = 0;
  Bytes gradient_bytes = 0;            // made behind the turn
  Bytes gate_bytes = 0;                // of the gradient, wherever it is made
  double host_update = 0, update = 0;  // seconds
  double early_update = 0;             // on the host, before the gate; meaningful if can_be_early
  bool can_be_early = true;
  bool in_front = false, in_back = false;  // read there
  OpId first = no_id, last = no_id;        // ops that read it
  OpId gradient_op = no_id;                // that makes the final gradient
  TensorId gradient = no_id;
};

struct Use {
  OpId op = no_id;
  bool writes = false;
};

// Between two uses of a group's bytes; or the same gap of several groups that one op makes.
struct Gap {
  std::vector<TensorId> groups;
  OpId after = no_id, before = no_id;  // the uses
  OpId writer = no_id;                 // of the bytes as they are in the gap
  Bytes bytes = 0;
};

class ProgramBuilder : private BoundMoments {
 public:
  ProgramBuilder(const Problem& problem, Bytes budget, BoundLinks links)
      : BoundMoments(problem), budget_(budget), sharing_(problem.sharing) {
    cuts_ = find_cuts(problem, ordered() ? share_cuts : 0);
    if (links == BoundLinks::apart) sharing_.of_in = sharing_.of_out = 0;
    program_.bytes = std::max(1.0, static_cast<double>(std::min(budget, total_bytes())));
    for (const Moment& moment : moments_)
      program_.shares.room.push_back(budget == unlimited
                                         ? static_cast<double>(total_bytes())
                                         : static_cast<double>(budget) - bytes_of(moment.operands));
  }

  BoundProgram build() {
    add_ops();
    add_parameters();
    add_activations();
    program_.shares.decisions = with_alike_as_one(std::move(program_.shares.decisions));
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
  void add_ops() {
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update || is_peer(op)) continue;
      add_op(op, in_front(op) ? program_.shares.fixed.front : program_.shares.fixed.back);
      cuts_.add_op(op, in_front(op), op_seconds(graph_.op(op), machine()), program_.shares.fixed);
    }
    if (problem_.layout.has_peers) add_peer_ops();
  }
  // The peer lane comes to its ops when it can, so an op counts in the front where an op of the compute lane
  // needs its result there, in the back where it needs a result from there, and otherwise in neither.
  void add_peer_ops() {
    std::vector<std::uint8_t> front(graph_.tensors.size(), 0), back(graph_.tensors.size(), 0);  // by tensor
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) continue;
      if (!is_peer(op) && in_front(op))
        for (TensorId id : graph_.op(op).reads) front[id] = 1;
      const std::vector<TensorId>& reads = graph_.op(op).reads;
      const bool is_late =
          is_peer(op) ? std::any_of(reads.begin(), reads.end(), [&](TensorId id) { return back[id] != 0; })
                      : !in_front(op);
      for (TensorId id : graph_.op(op).writes) back[id] = is_late;
    }
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (!is_peer(op)) continue;
      const std::vector<TensorId>& writes = graph_.op(op).writes;
      if (std::any_of(writes.begin(), writes.end(), [&](TensorId id) { return back[id] != 0; }))
        add_op(op, program_.shares.fixed.back);
      else if (std::any_of(writes.begin(), writes.end(), [&](TensorId id) { return front[id] != 0; }))
        add_op(op, program_.shares.fixed.front);
    }
  }
  // Its time, and of an op of the compute lane how much of it each link cannot use.
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
  void add_op(OpId op, ShareTimes& lanes) const {
    const double seconds = op_seconds(graph_.op(op), machine());
    lanes.at(index_of(problem_.layout.lanes[op])) += seconds;
    if (budget_ == unlimited || is_peer(op)) return;
    const auto budget = static_cast<double>(budget_);
    auto idle = [&](const Link& link, double shared, double taken) {
      return std::max(0.0, seconds * (1 - shared) - std::max(0.0, budget - taken) / link.bytes_per_second);
    };
    lanes[share_h2d] += idle(machine().h2d, sharing_.of_out, operand_bytes(op));
    lanes[share_d2h] += idle(machine().d2h, sharing_.of_in, bytes_of(groups(graph_.op(op).writes)));
  }
  void add_in(Bytes bytes, ShareTimes& lanes) const {
    const double seconds = static_cast<double>(bytes) / machine().h2d.bytes_per_second;
    lanes[share_h2d] += seconds;
    lanes[share_d2h] += seconds * sharing_.of_in;
    lanes[share_host] += static_cast<double>(bytes) * sharing_.host_seconds_per_byte;
  }
  void add_out(Bytes bytes, ShareTimes& lanes) const {
    const double seconds = static_cast<double>(bytes) / machine().d2h.bytes_per_second;
    lanes[share_d2h] += seconds;
    lanes[share_h2d] += seconds * sharing_.of_out;
    lanes[share_host] += static_cast<double>(bytes) * sharing_.host_seconds_per_byte;
  }

  void add_parameters() {
    std::map<TensorId, Parameter> parameters;
    std::vector<OpId> made_by(graph_.tensors.size(), no_id);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) {
        add_update(graph_.op(op), made_by, parameters);
        continue;
      }
      for (TensorId id : graph_.op(op).writes) made_by[id] = op;
      for (TensorId id : graph_.op(op).reads) {
        if (graph_.tensor(id).kind != TensorKind::parameter) continue;
        Parameter& parameter = parameters[id];
        (in_front(op) ? parameter.in_front : parameter.in_back) = true;
        parameter.last = op;
        if (parameter.first == no_id) parameter.first = op;
      }
    }
    for (const auto& [id, parameter] : parameters) program_.shares.decisions.push_back(decide(id, parameter));
  }
  void add_update(const Op& op, const std::vector<OpId>& made_by,
                  std::map<TensorId, Parameter>& parameters) const {
    for (TensorId written : op.writes) {
      if (graph_.kind_of(written) != TensorKind::parameter) continue;
      const TensorId whole = graph_.whole_of(written);
      Parameter& parameter = parameters[whole];
      parameter.bytes = graph_.tensor(whole).bytes();
      parameter.host_update += host_seconds(op, machine());
      parameter.early_update += problem_.early_seconds(op);
      parameter.can_be_early &= undo_bytes(graph_, op) > 0;
      parameter.update += op_seconds(op, machine());
      for (TensorId id : op.writes)
        if (graph_.kind_of(id) == TensorKind::optimizer_state)
          parameter.state_bytes += graph_.tensor(id).bytes();
      for (TensorId read : op.reads) {
        if (graph_.kind_of(read) != TensorKind::gradient) continue;
        const TensorId id = graph_.whole_of(read);
        parameter.gate_bytes = graph_.tensor(id).bytes();
        parameter.gradient = id;
        parameter.gradient_op = made_by[id];
        if (made_by[id] != no_id && !in_front(made_by[id])) parameter.gradient_bytes = parameter.gate_bytes;
      }
    }
  }
  ShareDecision decide(TensorId id, const Parameter& parameter) const {
    ShareDecision decision = on_host(id, parameter, false);
    if (parameter.can_be_early)
      for (const ShareCost& option : on_host(id, parameter, true).options) decision.options.push_back(option);
    ShareCost resident;
    resident.front[share_compute] = parameter.update;
    stay(id, parameter.bytes + parameter.state_bytes, resident, [](OpId) { return true; });
    for (std::size_t m = 0; m + 1 < moments_.size();
         ++m)  // the state is there, also where the parameter is an operand
      if (std::binary_search(moments_[m].operands.begin(), moments_[m].operands.end(), group_of(id)))
        resident.memory[m] += static_cast<double>(parameter.state_bytes);
    if (ordered() && parameter.gradient != no_id && parameter.gradient_op != no_id)
      stay(parameter.gradient, parameter.gate_bytes, resident,
           [&](OpId op) { return op > parameter.gradient_op; });
    resident.memory[gate()] +=
        static_cast<double>(parameter.state_bytes + parameter.bytes + parameter.gate_bytes);
    decision.options.push_back(resident);
    return decision;
  }
  // Streamed, and held. `early`: updated before the gate.
  ShareDecision on_host(TensorId id, const Parameter& parameter, bool early) const {
    ShareCost held;
    if (parameter.in_front) add_in(parameter.bytes, held.front);
    if (early) held.back[share_host] += parameter.early_update;
    if (!early && parameter.in_front) held.front[share_host] += parameter.host_update;
    add_out(parameter.gradient_bytes, held.back);
    cuts_.add_offload(id, static_cast<double>(parameter.gradient_bytes) / machine().d2h.bytes_per_second,
                      held);
    if (early)
      cuts_.add_early_update(id, parameter.early_update, held);
    else
      cuts_.add_update(id, parameter.host_update, held);
    ShareCost streamed = held;
    if (parameter.in_back) add_in(parameter.bytes, streamed.back);
    // In one load it is there from its first use to its last.
    stay(id, parameter.bytes, held,
         [&](OpId op) { return ordered() ? parameter.first < op && op < parameter.last : op == turn_; });
    return {{streamed, held}, 1};
  }

  void add_activations() {
    find_readers();
    if (ordered())
      add_gaps();
    else
      add_items();
  }

  // Of several micro-batches. An op that makes several items runs once more for all of them: its time counts
  // for the largest.
  void add_items() {
    const std::map<OpId, const ActivationItem*> largest = largest_items();
    for (const ActivationItem& item : problem_.items) {
      if (!crosses_turn(item)) continue;
      ShareCost kept, offloaded, rebuilt;
      // Of micro-batches one after another only those of one are there at its turn: on average so many.
      for (BucketId bucket : item.buckets)
        stay(problem_.layout.buckets[bucket].tensors.front().tensor, problem_.layout.buckets[bucket].bytes,
             kept, [&](OpId op) { return op == turn_; });
      for (double& memory : kept.memory) memory /= static_cast<double>(graph_.micro_batches);
      add_out(item.bytes, offloaded.front);
      add_in(item.bytes, offloaded.back);
      if (largest.at(item.writer) == &item) add_rebuilding(item.writer, item.bytes, rebuilt.back);
      program_.shares.decisions.push_back({{kept, offloaded, rebuilt}, 1});
    }
  }
  std::map<OpId, const ActivationItem*> largest_items() const {
    std::map<OpId, const ActivationItem*> largest;
    for (const ActivationItem& item : problem_.items) {
      const ActivationItem*& most = largest[item.writer];
      if (most == nullptr || most->bytes < item.bytes) most = &item;
    }
    return largest;
  }

  // Made before the turn, read behind it.
  bool crosses_turn(const ActivationItem& item) const {
    return in_front(item.writer) && std::any_of(item.buckets.begin(), item.buckets.end(), [&](BucketId id) {
             return read_in_back_[group_of(problem_.layout.buckets[id].tensors.front().tensor)];
           });
  }

  // Of one micro-batch: between two uses of a group's bytes with a moment between them they stay, come in
  // once more, or are made once more, in the phase in which they are away for the last time. They are away
  // before the turn, behind it, or at it.
  void add_gaps() {
    std::map<TensorId, std::vector<Use>> uses;
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) break;
      for (TensorId id : groups(graph_.op(op).reads)) add_use(id, {op, false}, uses);
      for (TensorId id : groups(graph_.op(op).writes)) add_use(id, {op, true}, uses);
    }
    // By writer, sides of the turn, and moments within: one decision, of which any mixture keeps to the
    // costs.
    std::map<std::tuple<OpId, bool, bool, std::size_t, std::size_t>, Gap> gaps;
    for (const auto& [id, of] : uses) {
      OpId writer = no_id;
      for (std::size_t i = 0; i + 1 < of.size(); ++i) {
        if (of[i].writes) writer = of[i].op;
        const auto [first, last] = moments_between(of[i].op, of[i + 1].op);
        // When the peer lane comes to an op is not known.
        if (first == last || is_peer(of[i].op) || is_peer(of[i + 1].op)) continue;
        Gap& gap = gaps[{writer, in_front(of[i].op), in_front(of[i + 1].op), first, last}];
        gap.groups.push_back(id);
        gap.after = of[i].op;
        gap.before = of[i + 1].op;
        gap.writer = writer;
        gap.bytes += group_bytes(id);
      }
    }
    // An op that makes several groups runs once more for all of them: its time counts for the largest. Each
    // gap of one group needs a run of its own.
    std::map<OpId, TensorId> largest;
    for (const auto& [key, gap] : gaps)
      for (TensorId id : gap.groups) {
        TensorId& most = largest.try_emplace(gap.writer, id).first->second;
        if (group_bytes(id) > group_bytes(most)) most = id;
      }
    for (const auto& [key, gap] : gaps) {
      const auto& of = gap.groups;
      add_gap(gap, gap.writer != no_id && std::find(of.begin(), of.end(), largest[gap.writer]) != of.end());
    }
  }
  void add_use(TensorId id, const Use& use, std::map<TensorId, std::vector<Use>>& uses) const {
    if (problem_.layout.roles[problem_.layout.bucket_of[id]] != BucketRole::activation) return;
    std::vector<Use>& of = uses[id];
    if (!of.empty() && of.back().op == use.op)
      of.back().writes |= use.writes;
    else
      of.push_back(use);
  }
  // Indices of the moments strictly between two ops.
  std::pair<std::size_t, std::size_t> moments_between(OpId after, OpId before) const {
    std::size_t first = 0;
    while (first < gate() && moments_[first].op <= after) ++first;
    std::size_t last = first;
    while (last < gate() && moments_[last].op < before) ++last;
    return {first, last};
  }
  // `counts`: whether the writer's time is counted here.
  void add_gap(const Gap& gap, bool counts) {
    const auto in_gap = [&](OpId op) { return gap.after < op && op < gap.before; };
    ShareDecision decision;
    const auto option = [&](auto&& there) -> ShareCost& {
      ShareCost& cost = decision.options.emplace_back();
      for (TensorId id : gap.groups)
        stay(id, group_bytes(id), cost, [&](OpId op) { return in_gap(op) && there(op); });
      return cost;
    };
    const auto rebuild = [&](ShareTimes& lanes) {
      if (counts) add_rebuilding(gap.writer, gap.bytes, lanes);
    };
    const auto nowhere = [](OpId) { return false; };
    option([](OpId) { return true; });
    if (in_front(gap.after) == in_front(gap.before)) {
      // Of several gaps one copy on the host may serve all: its way out counts for none of them.
      for (const bool again : {false, true}) {
        ShareCost& cost = option(nowhere);
        auto& lanes = in_front(gap.before) ? cost.front : cost.back;
        if (!again) add_in(gap.bytes, lanes);
        if (again && counts) add_op(gap.writer, lanes);
      }
    } else {
      const auto until_turn = [&](OpId op) { return in_front(op) || op == turn_; };
      const auto from_turn = [&](OpId op) { return !in_front(op) || op == turn_; };
      ShareCost& at_turn = option(nowhere);
      add_out(gap.bytes, at_turn.front);
      add_in(gap.bytes, at_turn.back);
      rebuild(option(nowhere).back);
      ShareCost& before = option(from_turn);
      add_out(gap.bytes, before.front);
      add_in(gap.bytes, before.front);
      if (ShareCost& cost = option(from_turn); counts) add_op(gap.writer, cost.front);
      ShareCost& behind = option(until_turn);  // its copy may have left before
      add_out(gap.bytes, behind.front);
      add_in(gap.bytes, behind.back);
      ShareCost& all_behind = option(until_turn);
      add_out(gap.bytes, all_behind.back);
      add_in(gap.bytes, all_behind.back);
      rebuild(option(until_turn).back);
    }
    program_.shares.decisions.push_back(std::move(decision));
  }
  Bytes group_bytes(TensorId id) const {
    return problem_.layout.buckets[problem_.layout.bucket_of[id]].bytes;
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
  void add_rebuilding(OpId op, Bytes bytes, ShareTimes& lanes) const {
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

  Bytes budget_;
  LaneSharing sharing_;
  StepCuts cuts_;
  BoundProgram program_;
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
