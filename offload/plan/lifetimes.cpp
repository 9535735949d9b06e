#include "offload/plan/lifetimes.h"

#include <algorithm>

namespace stowage {
namespace {

struct Touch {
  Position position = 0;
  bool writes = false;
};

class LifetimeBuilder {
 public:
  LifetimeBuilder(const Graph& graph, const RecomputeAnalysis& analysis, const BucketLayout& layout,
                  const Choices& choices)
      : graph_(graph), analysis_(analysis), layout_(layout), choices_(choices) {}

  Draft build() {
    draft_.sequence = make_sequence(graph_, analysis_, choices_);
    draft_.uses.resize(draft_.sequence.size());
    find_phases();
    collect_touches();
    find_offloadable();
    for (BucketId id = 0; id < layout_.buckets.size(); ++id)
      if (!touches_[id].empty()) add_bucket(id);
    return std::move(draft_);
  }

 private:
  void find_phases() {
    auto phase = [&](const SequenceStep& step) { return graph_.op(step.op).phase; };
    Position end = static_cast<Position>(draft_.sequence.size());
    forward_end_ = draft_.backward_end = end;
    for (Position p = end; p-- > 0;) {
      const SequenceStep& step = draft_.sequence[static_cast<std::size_t>(p)];
      if (phase(step) == Phase::update) draft_.backward_end = p;
      if (step.recompute || phase(step) != Phase::forward) forward_end_ = p;
    }
  }

  void collect_touches() {
    touches_.resize(layout_.buckets.size());
    for (std::size_t p = 0; p < draft_.sequence.size(); ++p) {
      const Op& op = graph_.op(draft_.sequence[p].op);
      for (TensorId id : op.reads) touch(id, static_cast<Position>(p), false);
      for (TensorId id : op.writes) touch(id, static_cast<Position>(p), true);
    }
  }
  void touch(TensorId tensor, Position position, bool writes) {
    std::vector<Touch>& touches = touches_[layout_.bucket_of[tensor]];
    if (touches.empty() || touches.back().position != position) touches.push_back({position, writes});
    touches.back().writes |= writes;
  }

  // Inputs of units that are recomputed with their inputs offloaded.
  void find_offloadable() {
    offloadable_.assign(layout_.buckets.size(), 0);
    for (std::size_t unit = 0; unit < analysis_.units.size(); ++unit)
      if (choices_.units[unit] == ActivationChoice::recompute_offload_input)
        for (TensorId group : analysis_.units[unit].inputs) offloadable_[layout_.bucket_of[group]] = 1;
    for (std::size_t unit = 0; unit < analysis_.units.size(); ++unit)
      if (choices_.units[unit] != ActivationChoice::recompute_offload_input)
        for (TensorId group : analysis_.units[unit].inputs) offloadable_[layout_.bucket_of[group]] = 0;
  }

  LifetimeId open(BucketId bucket, const Touch& touch) {
    DraftLifetime lifetime;
    lifetime.bucket = bucket;
    lifetime.first_use = lifetime.last_use = touch.position;
    draft_.lifetimes.push_back(lifetime);
    LifetimeId id = static_cast<LifetimeId>(draft_.lifetimes.size() - 1);
    draft_.uses[static_cast<std::size_t>(touch.position)].push_back(id);
    return id;
  }
  void extend(LifetimeId id, const Touch& touch) {
    draft_.lifetimes[id].last_use = touch.position;
    draft_.uses[static_cast<std::size_t>(touch.position)].push_back(id);
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
        return add_resident(id);
      case BucketRole::activation:
      case BucketRole::loss:
        return add_activation(id);
    }
  }

  void add_resident(BucketId id) {
    LifetimeId lifetime = open(id, touches_[id].front());
    for (std::size_t i = 1; i < touches_[id].size(); ++i) extend(lifetime, touches_[id][i]);
    at(lifetime).resident = true;
  }

  void add_landing(BucketId id) {
    LifetimeId lifetime = open(id, touches_[id].front());
    for (std::size_t i = 1; i < touches_[id].size(); ++i) extend(lifetime, touches_[id][i]);
    at(lifetime).offloaded = true;
  }

  bool same_load(LoadChoice choice, Position a, Position b) const {
    if (choice == LoadChoice::held || b == a + 1) return true;
    if (choice == LoadChoice::each_op) return false;
    auto key = [&](Position p) {
      return std::pair(p >= forward_end_, graph_.op(draft_.sequence[static_cast<std::size_t>(p)].op).unit);
    };
    return key(a) == key(b);
  }
  void add_loaded(BucketId id) {
    if (choices_.loads[id] == LoadChoice::resident) return add_resident(id);
    const std::vector<Touch>& touches = touches_[id];
    LifetimeId lifetime = open(id, touches.front());
    at(lifetime).prefetched = true;
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

  // A replay rebuilds what its unit alone uses from there on; of what crosses units it makes a copy
  // that nobody reads.
  void add_activation(BucketId id) {
    const std::vector<Touch>& touches = touches_[id];
    bool boundary = analysis_.boundary[analysis_.group[layout_.buckets[id].tensors.front().tensor]] != 0;
    LifetimeId lifetime = no_id;
    bool rebuilt = false;
    for (const Touch& touch : touches) {
      bool replayed = rewritten_by_replay(touch);
      if (boundary && replayed) {
        at(open(id, touch)).copy = true;
      } else if (lifetime == no_id || (replayed && !rebuilt)) {
        lifetime = open(id, touch);
        rebuilt = replayed;
      } else if (splits_for_offload(id, at(lifetime).last_use, touch.position)) {
        at(lifetime).offloaded = true;
        lifetime = open(id, touch);
        at(lifetime).prefetched = true;
      } else {
        extend(lifetime, touch);
      }
    }
    if (layout_.roles[id] == BucketRole::loss) draft_.lifetimes[first_of(id)].offloaded = true;
  }
  bool splits_for_offload(BucketId id, Position last, Position next) const {
    return offloadable_[id] && last < forward_end_ && next >= forward_end_ && next > last + 1;
  }
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
  Position forward_end_ = 0;
  std::vector<std::vector<Touch>> touches_;  // by bucket
  std::vector<std::uint8_t> offloadable_;    // by bucket
};

}  // namespace

std::vector<SequenceStep> make_sequence(const Graph& graph, const RecomputeAnalysis& analysis,
                                        const Choices& choices) {
  std::vector<SequenceStep> sequence;
  std::vector<std::uint8_t> replayed(analysis.units.size(), 0);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    const Op& description = graph.op(op);
    if (description.phase == Phase::update) {
      bool is_clip = std::find(description.writes.begin(), description.writes.end(), graph.clip) !=
                     description.writes.end();
      if (!choices.optimizer_on_host && !is_clip) sequence.push_back({op, false});
      continue;
    }
    if (description.phase == Phase::backward && !replayed[description.unit]) {
      replayed[description.unit] = 1;
      if (choices.units[description.unit] != ActivationChoice::keep)
        for (OpId replay : analysis.units[description.unit].ops) sequence.push_back({replay, true});
    }
    sequence.push_back({op, false});
  }
  return sequence;
}

Draft make_lifetimes(const Graph& graph, const RecomputeAnalysis& analysis, const BucketLayout& layout,
                     const Choices& choices) {
  return LifetimeBuilder(graph, analysis, layout, choices).build();
}

}  // namespace stowage
