#include "offload/plan/schedule/lifetimes.h"

#include <algorithm>
#include <numeric>

#include "offload/plan/schedule/gathers_ahead.h"

namespace stowage {
namespace {

struct Touch {
  Position position = 0;
  bool writes = false;
  bool begins = false;  // the touch writes, and reads nothing that the bucket held
};

class LifetimeBuilder {
 public:
  LifetimeBuilder(const Graph& graph, const RecomputeAnalysis& analysis, const BucketLayout& layout,
                  const Choices& choices)
      : graph_(graph), analysis_(analysis), layout_(layout), choices_(choices) {
    draft_.speculated = choices.speculated;
  }

  Draft build(std::uint32_t gathers_ahead) {
    make_sequence();
    if (gathers_ahead > 0) move_gathers(graph_, gathers_ahead, draft_.sequence);
    find_phases();
    stages_ = draft_.stages(graph_);
    collect_touches();
    if (choices_.until_next_load) count_loading_ops();
    for (BucketId id = 0; id < layout_.buckets.size(); ++id)
      if (!touches_of(id).empty()) add_bucket(id);
    draft_.uses = Uses(draft_.sequence.size(), uses_);
    return std::move(draft_);
  }

 private:
  void make_sequence() {
    rebuilt_.assign(layout_.buckets.size(), 0);
    find_remade();
    std::vector<std::uint8_t> begun(analysis_.units.size(), 0);
    for (OpId op : analysis_.sequence) {
      const Op& description = graph_.op(op);
      if (description.phase == Phase::update && !runs_on_device(description)) continue;
      if (description.phase == Phase::backward && !begun[description.unit]) {
        begun[description.unit] = 1;
        add_replay(description.unit);
      }
      draft_.sequence.push_back({op, false});
    }
  }
  bool runs_on_device(const Op& update) const {
    return std::any_of(update.writes.begin(), update.writes.end(), [&](TensorId id) {
      return graph_.kind_of(id) == TensorKind::parameter &&
             !is_updated_on_host(layout_.bucket_of[id], layout_.slice_number[id]);
    });
  }
  bool is_resident(BucketId parameters) const { return choices_.loads[parameters] >= LoadChoice::in_slices; }
  bool is_updated_on_host(BucketId parameters, std::uint32_t slice) const {
    return !is_resident(parameters) || slice >= first_host_slice(parameters);
  }
  // Returns the first slice that the host updates, no_id if there is none. Requires a resident.
  std::uint32_t first_host_slice(BucketId parameters) const {
    if (choices_.loads[parameters] == LoadChoice::resident) return no_id;
    const auto found = choices_.device_slices.find(parameters);
    return found == choices_.device_slices.end() ? 0 : found->second;
  }
  bool has_host_slices(BucketId parameters) const {
    return first_host_slice(parameters) < layout_.slices[parameters].size();
  }
  bool is_rebuilt(TensorId group) const {
    return choices_.activations[layout_.bucket_of[group]] == ActivationChoice::recompute;
  }
  void add_replay(std::uint32_t unit) {
    PartialReplay replay;
    if (!analysis_.units[unit].ops.empty())
      replay = replay_of(graph_, analysis_, unit, [&](TensorId group) { return !is_rebuilt(group); });
    ++turn_;
    for (OpId op : replay.ops) remake_reads(op);
    if (unit < backward_of_.size())
      for (OpId op : backward_of_[unit]) remake_reads(op);
    for (OpId op : replay.ops) draft_.sequence.push_back({op, true});
    for (TensorId group : replay.rebuilt) rebuilt_[layout_.bucket_of[group]] = 1;
  }

  // Marks the buckets that are remade. Their values cross units, are to be rebuilt, and have inputs that
  // backward has: inputs that are not dropped, or that are remade themselves.
  void find_remade() {
    remade_.assign(layout_.buckets.size(), 0);
    last_turn_.assign(graph_.tensors.size(), -1);
    bool any = false;
    std::uint32_t last_unit = no_id;  // the unit in which forward turns into backward
    for (const Op& op : graph_.ops)
      if (op.phase == Phase::forward) last_unit = op.unit;
    for (OpId id = 0; id < graph_.ops.size(); ++id)  // inputs come before results
      for (TensorId tensor : graph_.op(id).writes) {
        const TensorId group = analysis_.group[tensor];
        if (graph_.op(id).phase != Phase::forward || analysis_.remaker[group] != id || !is_rebuilt(group))
          continue;
        const std::vector<TensorId>& reads = graph_.op(id).reads;
        const bool had = std::all_of(reads.begin(), reads.end(), [&](TensorId read) {
          return graph_.tensor(read).kind != TensorKind::activation || !is_rebuilt(analysis_.group[read]) ||
                 remade_[layout_.bucket_of[analysis_.group[read]]] != 0;
        });
        if (!had) continue;
        remade_[layout_.bucket_of[group]] = 1;
        any = true;
      }
    if (!any) return;
    for (const Op& op : graph_.ops)
      if (op.phase == Phase::forward && op.unit == last_unit)
        for (TensorId read : op.reads) last_turn_[analysis_.group[read]] = 0;  // the value is still there
    backward_of_.resize(analysis_.units.size());
    for (OpId id = 0; id < graph_.ops.size(); ++id)
      if (graph_.op(id).phase == Phase::backward) backward_of_[graph_.op(id).unit].push_back(id);
  }
  // Replays remakers of the op's inputs, unless these are still there from this or the last unit's backward.
  void remake_reads(OpId op) {
    for (TensorId read : graph_.op(op).reads) {
      const TensorId group = analysis_.group[read];
      if (!remade_[layout_.bucket_of[group]]) continue;
      const bool is_there = last_turn_[group] >= 0 && last_turn_[group] + 1 >= turn_;
      if (!is_there) {
        remake_reads(analysis_.remaker[group]);
        draft_.sequence.push_back({analysis_.remaker[group], true});
      }
      last_turn_[group] = turn_;
    }
  }

  void find_phases() {
    Position end = static_cast<Position>(draft_.sequence.size());
    draft_.backward_end = end;
    for (Position p = end; p-- > 0;)
      if (op_at(p).phase == Phase::update) draft_.backward_end = p;
  }
  const Op& op_at(Position p) const { return graph_.op(draft_.sequence[static_cast<std::size_t>(p)].op); }
  // Replays are part of backward.
  bool is_forward(Position p) const {
    return op_at(p).phase == Phase::forward && !draft_.sequence[static_cast<std::size_t>(p)].recompute;
  }

  // Sorts the step's touches by bucket, and those of one bucket by position.
  void collect_touches() {
    first_touch_.assign(layout_.buckets.size() + 1, 0);
    for (const SequenceStep& step : draft_.sequence)
      for (const BucketOperand& operand : layout_.operands_of(step.op)) ++first_touch_[operand.bucket + 1];
    std::partial_sum(first_touch_.begin(), first_touch_.end(), first_touch_.begin());
    touches_.resize(first_touch_.back());
    uses_.reserve(first_touch_.back());
    draft_.lifetimes.reserve(2 * layout_.buckets.size());
    std::vector<std::size_t> next(first_touch_.begin(), first_touch_.end() - 1);
    for (std::size_t p = 0; p < draft_.sequence.size(); ++p)
      for (const BucketOperand& operand : layout_.operands_of(draft_.sequence[p].op))
        touches_[next[operand.bucket]++] = {static_cast<Position>(p), operand.writes,
                                            operand.writes && !operand.reads};
  }
  std::span<const Touch> touches_of(BucketId id) const {
    return {touches_.data() + first_touch_[id], first_touch_[id + 1] - first_touch_[id]};
  }

  LifetimeId open(BucketId bucket, const Touch& touch) {
    DraftLifetime lifetime;
    lifetime.bucket = bucket;
    lifetime.first_use = lifetime.last_use = lifetime.last_before_update = touch.position;
    draft_.lifetimes.push_back(lifetime);
    LifetimeId id = static_cast<LifetimeId>(draft_.lifetimes.size() - 1);
    uses_.emplace_back(touch.position, id);
    return id;
  }
  void extend(LifetimeId id, const Touch& touch) {
    draft_.lifetimes[id].last_use = touch.position;
    if (touch.position < draft_.backward_end) draft_.lifetimes[id].last_before_update = touch.position;
    uses_.emplace_back(touch.position, id);
  }
  DraftLifetime& at(LifetimeId id) { return draft_.lifetimes[id]; }

  void add_bucket(BucketId id) {
    switch (layout_.roles[id]) {
      case BucketRole::parameter:
      case BucketRole::input:
      case BucketRole::clip:
        return add_loaded(id);
      case BucketRole::gradient:
      case BucketRole::square_sums:
        return add_landing(id);
      case BucketRole::optimizer_state:
        add_resident(id);
        return;
      case BucketRole::activation:
      case BucketRole::loss:
        return add_activation(id);
    }
  }

  LifetimeId add_resident(BucketId id) {
    LifetimeId lifetime = open(id, touches_of(id).front());
    for (std::size_t i = 1; i < touches_of(id).size(); ++i) extend(lifetime, touches_of(id)[i]);
    at(lifetime).resident = true;
    return lifetime;
  }
  void add_resident_parameters(BucketId id) {
    const LifetimeId lifetime = add_resident(id);
    if (!has_host_slices(id)) return;
    at(lifetime).prefetched = true;
    at(lifetime).first_moved = first_host_slice(id);
  }

  // Adds gradients or parts of the norm. Gradients land on the host; a resident's gradient stays, except for
  // the slices that the host updates. If the parameters leave between two units that use them (in two
  // micro-batches, or as tied parameters), so does the sum of their gradients.
  void add_landing(BucketId id) {
    const BucketId parameters = layout_.parameters_of[id];
    const bool stays = parameters != no_id && is_resident(parameters);
    const bool lands = !stays || has_host_slices(parameters);
    const std::span<const Touch> touches = touches_of(id);
    LifetimeId lifetime = open(id, touches.front());
    for (std::size_t i = 1; i < touches.size(); ++i) {
      if (parameters != no_id &&
          waits_on_host(choices_.loads[parameters], touches[i - 1].position, touches[i].position)) {
        at(lifetime).offloaded = true;
        lifetime = open(id, touches[i]);
        at(lifetime).prefetched = true;
      } else {
        extend(lifetime, touches[i]);
      }
    }
    at(lifetime).offloaded = lands;
    if (stays && lands) at(lifetime).first_moved = first_host_slice(parameters);
  }
  // True if the sum of gradients whose parameters are loaded by `choice` is on the host from `a` to `b`.
  bool waits_on_host(LoadChoice choice, Position a, Position b) const {
    const std::uint32_t from = op_at(a).unit, to = op_at(b).unit;
    if (from == to || choice >= LoadChoice::held) return false;
    return choice == LoadChoice::each_op || place_of_load(from) != place_of_load(to);
  }

  // Counts, by position, the ops before it that read a parameter bucket which is loaded for each op.
  void count_loading_ops() {
    std::vector<std::uint8_t> loads(draft_.sequence.size(), 0);
    for (BucketId id : layout_.parameters)
      if (choices_.loads[id] == LoadChoice::each_op)
        for (const Touch& touch : touches_of(id)) loads[static_cast<std::size_t>(touch.position)] = 1;
    loading_ops_.assign(1, 0);
    for (std::uint8_t load : loads) loading_ops_.push_back(loading_ops_.back() + load);
  }
  bool loads_between(Position a, Position b) const {
    return loading_ops_[static_cast<std::size_t>(b)] > loading_ops_[static_cast<std::size_t>(a) + 1];
  }

  // True if one load serves the uses at `a` and `b`. An each_unit load serves a phase of one unit, in
  // layer-major order of a half-block for all micro-batches, and with several ranges of a range for all of
  // them (of the last half-block or range, both phases).
  bool same_load(LoadChoice choice, Position a, Position b) const {
    if (choice == LoadChoice::held || b == a + 1) return true;
    if (choice == LoadChoice::each_op && !loading_ops_.empty()) return !loads_between(a, b);
    if (choice == LoadChoice::each_op) return false;
    auto key = [&](Position p) {
      const std::uint32_t unit = op_at(p).unit;
      return std::pair(is_forward(p) && !turns(unit), place_of_load(unit));
    };
    return key(a) == key(b);
  }
  bool has_ranges() const { return !graph_.range_begins.empty(); }
  // Returns the half-block, the range or the unit for which an each_unit load comes.
  std::uint32_t place_of_load(std::uint32_t unit) const {
    if (unit == no_id) return no_id;
    if (analysis_.order.is_layer_major) return graph_.half_block_of(unit);
    return has_ranges() ? graph_.range_of(unit) : unit;
  }
  // True if one load serves the unit in both phases: in the last half-block or range, forward and backward
  // take turns.
  bool turns(std::uint32_t unit) const {
    if (unit == no_id || graph_.micro_batches == 1) return false;
    if (!analysis_.order.is_layer_major) return has_ranges() && graph_.is_in_last_range(unit);
    return graph_.half_block_of(unit) + 1 == graph_.unit_names.size() / graph_.micro_batches;
  }
  void add_loaded(BucketId id) {
    if (is_resident(id)) return add_resident_parameters(id);
    const std::span<const Touch> touches = touches_of(id);
    LifetimeId lifetime = open(id, touches.front());
    at(lifetime).prefetched = true;
    at(lifetime).whole_step = choices_.held_all_step && layout_.roles[id] == BucketRole::parameter;
    for (std::size_t i = 1; i < touches.size(); ++i) {
      if (same_load(choices_.loads[id], touches[i - 1].position, touches[i].position)) {
        extend(lifetime, touches[i]);
      } else {
        lifetime = open(id, touches[i]);
        at(lifetime).prefetched = true;
      }
    }
  }

  bool rewritten_by_replay(const Touch& touch) const {
    return touch.writes && draft_.sequence[static_cast<std::size_t>(touch.position)].recompute;
  }

  // A replay rebuilds values that only its unit uses from there on. If a value crosses units or stays, the
  // replay writes a copy that nobody reads. Partial sums in one bucket have lifetimes of their own.
  void add_activation(BucketId id) {
    LifetimeId lifetime = no_id;
    bool rebuilt = false;
    bool host_has_it = false;  // the host has the bytes of the open lifetime
    for (const Touch& touch : touches_of(id)) {
      const bool replayed = rewritten_by_replay(touch);
      if (replayed && !rebuilt_[id] && !remade_[id]) {
        at(open(id, touch)).copy = true;
      } else if (lifetime == no_id || (replayed && (!rebuilt || remade_[id])) ||
                 (touch.begins && !replayed)) {
        lifetime = open(id, touch);
        rebuilt = replayed;
        host_has_it = false;
      } else if (leaves(id, at(lifetime).last_use, touch.position, host_has_it)) {
        at(lifetime).offloaded = !host_has_it;
        lifetime = open(id, touch);
        at(lifetime).prefetched = true;
        host_has_it = !touch.writes;
      } else {
        host_has_it &= !touch.writes;
        extend(lifetime, touch);
      }
    }
    if (layout_.roles[id] == BucketRole::loss) draft_.lifetimes[first_of(id)].offloaded = true;
  }
  // True if the value is on the host between its uses at `last` and `next`. A value that is to be rebuilt,
  // but crosses units and is not remade, spills.
  bool leaves(BucketId id, Position last, Position next, bool host_has_it) const {
    using enum ActivationChoice;
    const ActivationChoice choice = choices_.activations[id];
    const bool crosses =
        analysis_.remaker[analysis_.group[layout_.buckets[id].tensors.front().tensor]] != no_id;
    if (choice == keep || (choice == recompute && !crosses) || next == last + 1) return false;
    const bool long_gap = stage(next) > stage(last) + 1;
    if (remade_[id]) return long_gap && is_forward(next);
    if (is_forward(last) && !is_forward(next)) return true;
    if (choice == reload && host_has_it) return true;
    return choice != offload && long_gap;
  }
  std::uint32_t stage(Position p) const { return stages_[static_cast<std::size_t>(p)]; }
  LifetimeId first_of(BucketId id) const {
    for (LifetimeId i = 0; i < draft_.lifetimes.size(); ++i)
      if (draft_.lifetimes[i].bucket == id) return i;
    return no_id;
  }

  const Graph& graph_;
  const RecomputeAnalysis& analysis_;
  const BucketLayout& layout_;
  const Choices& choices_;
  Draft draft_;
  std::vector<Touch> touches_;            // sorted by bucket, then by position
  std::vector<std::size_t> first_touch_;  // index of each bucket's first touch, and the end
  std::vector<std::pair<Position, LifetimeId>> uses_;
  std::vector<std::uint32_t> stages_;  // stage of each position
  std::vector<std::uint32_t> loading_ops_;
  std::vector<std::uint8_t> rebuilt_;           // by bucket: 1 if its unit's replay rebuilds it
  std::vector<std::uint8_t> remade_;            // by bucket: 1 if it is made anew for each unit that reads it
  std::vector<std::vector<OpId>> backward_of_;  // backward ops by unit; empty if nothing is remade
  int turn_ = -1;                               // units whose backward has begun, less one
  std::vector<int> last_turn_;                  // by group: last turn with its value; -1: none yet
};

}  // namespace

Uses::Uses(std::size_t positions, const std::vector<std::pair<Position, LifetimeId>>& uses)
    : begins_(positions + 1, 0), ids_(uses.size()) {
  for (const auto& [position, id] : uses) ++begins_[static_cast<std::size_t>(position) + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  std::vector<std::size_t> next = begins_;
  for (const auto& [position, id] : uses) ids_[next[static_cast<std::size_t>(position)]++] = id;
}

std::vector<ByteRange> transfers_of(const DraftLifetime& lifetime, const BucketLayout& layout) {
  const std::vector<ByteRange>& slices = layout.slices[lifetime.bucket];
  if (!slices.empty() && layout.roles[lifetime.bucket] == BucketRole::parameter)
    return {slices.begin() + lifetime.first_moved, slices.end()};
  if (lifetime.first_moved > 0) return {{slices[lifetime.first_moved].begin, slices.back().end}};
  return {{0, layout.buckets[lifetime.bucket].bytes}};
}

std::vector<std::uint32_t> Draft::stages(const Graph& graph) const {
  std::vector<std::uint32_t> stages(sequence.size(), 0);
  // A stage begins where a launch's unit or phase changes. Replays belong to the launch behind them.
  const Op* before = nullptr;
  std::size_t replays = 0;
  std::uint32_t stage = 0;
  for (std::size_t p = 0; p < sequence.size(); ++p) {
    if (sequence[p].recompute) {
      ++replays;
      continue;
    }
    const Op& op = graph.op(sequence[p].op);
    if (before != nullptr && (op.unit != before->unit || op.phase != before->phase)) ++stage;
    before = &op;
    for (std::size_t i = 0; i <= replays; ++i) stages[p - i] = stage;
    replays = 0;
  }
  return stages;
}

Draft make_lifetimes(const Graph& graph, const RecomputeAnalysis& analysis, const BucketLayout& layout,
                     const Choices& choices, std::uint32_t gathers_ahead) {
  return LifetimeBuilder(graph, analysis, layout, choices).build(gathers_ahead);
}

}  // namespace stowage
