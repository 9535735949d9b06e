#include "offload/recompute/recompute.h"

#include <algorithm>
#include <numeric>

namespace stowage {
namespace {

TensorId find_root(std::vector<TensorId>& parent, TensorId id) {
  while (parent[id] != id) {
    parent[id] = parent[parent[id]];
    id = parent[id];
  }
  return id;
}

bool is_forward_activation(const Graph& graph, TensorId id, const std::vector<OpId>& producer) {
  return graph.tensor(id).kind == TensorKind::activation && producer[id] != no_id &&
         graph.op(producer[id]).phase == Phase::forward;
}

std::vector<OpId> producers(const Graph& graph) {
  std::vector<OpId> producer(graph.tensors.size(), no_id);
  for (OpId op = 0; op < graph.ops.size(); ++op)
    if (graph.op(op).phase != Phase::update)
      for (TensorId id : graph.op(op).writes) producer[id] = op;
  return producer;
}

// A group crosses units when ops of two units (of any phase) touch it.
std::vector<std::uint8_t> find_boundaries(const Graph& graph, const std::vector<TensorId>& group) {
  std::vector<std::uint8_t> boundary(graph.tensors.size(), 0);
  std::vector<std::uint32_t> unit_of(graph.tensors.size(), no_id);
  auto touch = [&](TensorId id, std::uint32_t unit) {
    TensorId root = group[id];
    if (unit_of[root] == no_id) unit_of[root] = unit;
    if (unit_of[root] != unit) boundary[root] = 1;
  };
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::update) continue;
    for (TensorId id : op.reads) touch(id, op.unit);
    for (TensorId id : op.writes) touch(id, op.unit);
  }
  if (graph.loss != no_id) boundary[group[graph.loss]] = 1;
  return boundary;
}

// The state in which a boundary group is kept: its last member in program order.
std::vector<TensorId> final_members(const Graph& graph, const std::vector<TensorId>& group) {
  std::vector<TensorId> last(graph.tensors.size(), no_id);
  for (const Op& op : graph.ops)
    for (TensorId id : op.writes) last[group[id]] = id;
  return last;
}

std::vector<TensorId> forward_states(const Graph& graph, const std::vector<TensorId>& group) {
  std::vector<TensorId> last(graph.tensors.size(), no_id);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward) continue;
    for (TensorId id : op.writes) last[group[id]] = id;
  }
  return last;
}

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

class UnitAnalyser {
 public:
  UnitAnalyser(const Graph& graph, const RecomputeAnalysis& analysis)
      : graph_(graph),
        analysis_(analysis),
        producer_(producers(graph)),
        final_(final_members(graph, analysis.group)),
        place_(graph.ops.size()),
        replayable_(graph.tensors.size(), 1) {
    for (std::size_t p = 0; p < place_.size(); ++p) place_[analysis.sequence[p]] = p;
    while (drop_unreplayable()) {
    }
  }

  UnitReplay analyse(std::uint32_t unit, const std::vector<OpId>& forward,
                     const std::vector<OpId>& backward) {
    UnitReplay replay;
    if (turns(forward, backward)) {
      collect_inputs(replay, backward);
      return replay;
    }
    std::vector<std::uint8_t> wanted(graph_.tensors.size(), 0);
    for (OpId op : backward)
      for (TensorId id : graph_.op(op).reads)
        if (!wanted[id] && made_in(id, unit) && replayable_[analysis_.group[id]]) {
          wanted[id] = 1;
          replay.saved.push_back(id);
          replay.saved_bytes += graph_.tensor(id).bytes();
        }
    for (auto it = forward.rbegin(); it != forward.rend(); ++it) {
      const Op& op = graph_.op(*it);
      if (std::none_of(op.writes.begin(), op.writes.end(), [&](TensorId id) { return wanted[id] != 0; }))
        continue;
      replay.ops.push_back(*it);
      for (TensorId id : op.reads)
        if (made_in(id, unit)) wanted[id] = 1;
    }
    std::reverse(replay.ops.begin(), replay.ops.end());
    collect_inputs(replay, backward);
    return replay;
  }

 private:
  // True if backward follows at once on forward: a replay would rebuild tensors that are still there.
  bool turns(const std::vector<OpId>& forward, const std::vector<OpId>& backward) const {
    return !forward.empty() && !backward.empty() && place_[backward.front()] == place_[forward.back()] + 1;
  }
  bool made_in(TensorId id, std::uint32_t unit) const {
    return is_forward_activation(graph_, id, producer_) && !analysis_.boundary[analysis_.group[id]] &&
           graph_.op(producer_[id]).unit == unit;
  }
  // A group can be rebuilt only as a whole, and an op only with all its results. Returns true if this pass
  // found one more group that cannot be rebuilt.
  bool drop_unreplayable() {
    bool changed = false;
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::forward || (op.replayable && inputs_available(op) && outputs_rebuilt(op)))
        continue;
      for (TensorId id : op.writes) {
        changed |= replayable_[analysis_.group[id]] != 0;
        replayable_[analysis_.group[id]] = 0;
      }
    }
    return changed;
  }
  bool outputs_rebuilt(const Op& op) const {
    return std::all_of(op.writes.begin(), op.writes.end(), [&](TensorId id) {
      const TensorId group = analysis_.group[id];
      return analysis_.boundary[group] != 0 || replayable_[group] != 0;
    });
  }
  // True if backward can have everything that the op reads: parameters, inputs, the final state of groups
  // that cross units, and groups that a replay rebuilds.
  bool inputs_available(const Op& op) const {
    for (TensorId id : op.reads) {
      if (!is_forward_activation(graph_, id, producer_)) continue;
      TensorId root = analysis_.group[id];
      if (analysis_.boundary[root] ? final_[root] != id : !replayable_[root]) return false;
    }
    return true;
  }
  bool rebuilt(TensorId group) const { return !analysis_.boundary[group] && replayable_[group]; }
  void collect_inputs(UnitReplay& replay, const std::vector<OpId>& backward) const {
    auto add = [&](OpId op) {
      for (TensorId id : graph_.op(op).reads)
        if (is_forward_activation(graph_, id, producer_) && !rebuilt(analysis_.group[id]))
          replay.inputs.push_back(analysis_.group[id]);
    };
    std::for_each(replay.ops.begin(), replay.ops.end(), add);
    std::for_each(backward.begin(), backward.end(), add);
    std::sort(replay.inputs.begin(), replay.inputs.end());
    replay.inputs.erase(std::unique(replay.inputs.begin(), replay.inputs.end()), replay.inputs.end());
  }

  const Graph& graph_;
  const RecomputeAnalysis& analysis_;
  std::vector<OpId> producer_;
  std::vector<TensorId> final_;
  std::vector<std::size_t> place_;        // place of each op in the order of execution
  std::vector<std::uint8_t> replayable_;  // 1 for groups that can be replayed
};

// How ops touch each group, by group.
struct GroupUses {
  explicit GroupUses(const Graph& graph, const RecomputeAnalysis& analysis)
      : writer(graph.tensors.size(), no_id),
        writers(graph.tensors.size(), 0),
        backward_from(graph.tensors.size(), no_id) {
    std::uint32_t stage = 0;
    const Op* before = nullptr;
    for (const OpId id : analysis.sequence) {
      const Op& op = graph.op(id);
      if (op.phase == Phase::update) continue;
      if (before != nullptr && (op.unit != before->unit || op.phase != before->phase)) ++stage;
      before = &op;
      if (op.phase == Phase::backward && op.unit != no_id) {
        backward_stage.resize(std::max<std::size_t>(backward_stage.size(), op.unit + std::size_t{1}), no_id);
        if (backward_stage[op.unit] == no_id) backward_stage[op.unit] = stage;
      }
      for (TensorId tensor : op.writes) {
        const TensorId group = analysis.group[tensor];
        if (writer[group] != id) ++writers[group];
        writer[group] = id;
      }
      if (op.phase == Phase::backward)
        for (TensorId tensor : op.reads) {
          std::uint32_t& from = backward_from[analysis.group[tensor]];
          if (from == no_id) from = stage;
        }
    }
  }
  std::vector<OpId> writer;                   // the last op that writes the group, in the order of execution
  std::vector<std::uint32_t> writers;         // the number of ops that write the group
  std::vector<std::uint32_t> backward_from;   // stage of the first backward op that reads the group
  std::vector<std::uint32_t> backward_stage;  // stage of each unit's first backward op
};

std::vector<OpId> find_remakers(const Graph& graph, const RecomputeAnalysis& analysis) {
  const GroupUses uses(graph, analysis);
  const std::vector<OpId> producer = producers(graph);
  // True if one forward op alone makes the group, and backward reads it.
  const auto is_constant = [&](TensorId group) {
    const OpId writer = uses.writer[group];
    return writer != no_id && uses.writers[group] == 1 && graph.op(writer).phase == Phase::forward &&
           uses.backward_from[group] != no_id;
  };
  const auto is_had = [&](TensorId id) {
    const TensorKind kind = graph.tensor(id).kind;
    if (kind == TensorKind::parameter || kind == TensorKind::input) return true;
    return is_forward_activation(graph, id, producer) && is_constant(analysis.group[id]);
  };
  std::vector<OpId> remaker(graph.tensors.size(), no_id);
  for (TensorId group = 0; group < graph.tensors.size(); ++group) {
    if (analysis.group[group] != group || !analysis.boundary[group] || !is_constant(group)) continue;
    if (!is_forward_activation(graph, group, producer) ||
        (graph.loss != no_id && analysis.group[graph.loss] == group))
      continue;
    const OpId op = uses.writer[group];
    const std::uint32_t unit = graph.op(op).unit;
    const bool near = unit < uses.backward_stage.size() && uses.backward_stage[unit] != no_id &&
                      uses.backward_from[group] + 1 >= uses.backward_stage[unit];
    const std::vector<TensorId>& reads = graph.op(op).reads;
    if (near && graph.op(op).replayable && std::all_of(reads.begin(), reads.end(), is_had))
      remaker[group] = op;
  }
  return remaker;
}

}  // namespace

std::vector<TensorId> alias_groups(const Graph& graph) {
  std::vector<TensorId> parent(graph.tensors.size());
  std::iota(parent.begin(), parent.end(), 0U);
  for (TensorId id = 0; id < parent.size(); ++id)
    if (graph.kind_of(id) != TensorKind::optimizer_state) parent[id] = graph.whole_of(id);
  for (const Op& op : graph.ops)
    for (const Alias& alias : op.may_alias) {
      TensorId a = find_root(parent, op.writes[alias.write]);
      TensorId b = find_root(parent, op.reads[alias.read]);
      parent[std::max(a, b)] = std::min(a, b);
    }
  for (TensorId id = 0; id < parent.size(); ++id) parent[id] = find_root(parent, id);
  return parent;
}

RecomputeAnalysis analyse_recompute(const Graph& graph, MicroBatchOrder order) {
  RecomputeAnalysis analysis;
  analysis.order = order;
  analysis.sequence = execution_order(graph, order);
  analysis.group = alias_groups(graph);
  analysis.boundary = find_boundaries(graph, analysis.group);
  std::size_t units = graph.unit_names.size();
  for (const Op& op : graph.ops)
    if (op.unit != no_id) units = std::max<std::size_t>(units, op.unit + 1);
  std::vector<std::vector<OpId>> forward(units);
  std::vector<std::vector<OpId>> backward(units);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    if (graph.op(op).phase == Phase::forward) forward[graph.op(op).unit].push_back(op);
    if (graph.op(op).phase == Phase::backward) backward[graph.op(op).unit].push_back(op);
  }
  UnitAnalyser analyser(graph, analysis);
  for (std::uint32_t unit = 0; unit < units; ++unit)
    analysis.units.push_back(analyser.analyse(unit, forward[unit], backward[unit]));
  analysis.forward_state = forward_states(graph, analysis.group);
  analysis.rebuildable.assign(graph.tensors.size(), 0);
  for (const UnitReplay& replay : analysis.units)
    for (OpId op : replay.ops)
      for (TensorId id : graph.op(op).writes)
        analysis.rebuildable[id] = analysis.boundary[analysis.group[id]] == 0;
  analysis.remaker = find_remakers(graph, analysis);
  return analysis;
}

PartialReplay replay_of(const Graph& graph, const RecomputeAnalysis& analysis, std::uint32_t unit,
                        const std::function<bool(TensorId)>& stays) {
  const UnitReplay& whole = analysis.units[unit];
  std::vector<TensorId> forced;  // groups that stay, although the replay needs an earlier state of them
  for (;;) {
    PartialReplay replay;
    std::vector<TensorId> wanted;
    const std::size_t before = forced.size();
    auto there = [&](TensorId group) { return stays(group) && !contains(forced, group); };
    for (TensorId id : whole.saved)
      if (!there(analysis.group[id])) wanted.push_back(id);
    for (auto it = whole.ops.rbegin(); it != whole.ops.rend(); ++it) {
      const Op& op = graph.op(*it);
      if (std::none_of(op.writes.begin(), op.writes.end(), [&](TensorId id) { return contains(wanted, id); }))
        continue;
      replay.ops.push_back(*it);
      for (TensorId id : op.reads) {
        const TensorId group = analysis.group[id];
        if (!analysis.rebuildable[id]) continue;
        if (!there(group))
          wanted.push_back(id);
        else if (analysis.forward_state[group] != id)
          forced.push_back(group);
      }
    }
    if (forced.size() > before) continue;
    std::reverse(replay.ops.begin(), replay.ops.end());
    for (OpId op : replay.ops)
      for (TensorId id : graph.op(op).writes)
        if (analysis.rebuildable[id] && !there(analysis.group[id]))
          replay.rebuilt.push_back(analysis.group[id]);
    std::sort(replay.rebuilt.begin(), replay.rebuilt.end());
    replay.rebuilt.erase(std::unique(replay.rebuilt.begin(), replay.rebuilt.end()), replay.rebuilt.end());
    return replay;
  }
}

}  // namespace stowage
