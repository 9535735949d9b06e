#include "offload/plan/problem/items.h"

#include <algorithm>
#include <map>
#include <utility>

#include "offload/plan/problem/buckets.h"
#include "offload/plan/problem/choices.h"

namespace stowage {
namespace {

// Returns, by bucket, the last forward op that writes it, or else the first op that writes it.
std::vector<OpId> writers(const Graph& graph, const BucketLayout& layout) {
  std::vector<OpId> writer(layout.buckets.size(), no_id);
  for (OpId op = 0; op < graph.ops.size(); ++op)
    for (TensorId id : graph.op(op).writes) {
      OpId& of = writer[layout.bucket_of[id]];
      if (of == no_id || graph.op(op).phase == Phase::forward) of = op;
    }
  return writer;
}

// Returns the buckets with a long pause between two uses, each with the unit of its last use.
std::vector<std::pair<BucketId, std::uint32_t>> with_long_pauses(const Graph& graph,
                                                                 const RecomputeAnalysis& analysis,
                                                                 const BucketLayout& layout) {
  constexpr std::uint32_t never = no_id;
  std::vector<std::uint32_t> last_stage(layout.buckets.size(), never),
      last_unit(layout.buckets.size(), no_id);
  std::vector<std::uint8_t> has_pause(layout.buckets.size(), 0);
  std::uint32_t stage = 0;
  std::pair<std::uint32_t, Phase> before{no_id, Phase::forward};
  for (OpId id : analysis.sequence) {
    const Op& op = graph.op(id);
    if (op.phase == Phase::update) continue;
    const std::pair key{op.unit, op.phase};
    if (key != before) ++stage;
    before = key;
    for (const BucketOperand& operand : layout.operands_of(id)) {
      std::uint32_t& last = last_stage[operand.bucket];
      const bool begins = operand.writes && !operand.reads;
      has_pause[operand.bucket] |= last != never && stage > last + 1 && !begins;
      last = stage;
      last_unit[operand.bucket] = op.unit;
    }
  }
  std::vector<std::pair<BucketId, std::uint32_t>> found;
  for (BucketId id = 0; id < has_pause.size(); ++id)
    if (has_pause[id]) found.emplace_back(id, last_unit[id]);
  return found;
}

struct Found {
  OpId writer = no_id;
  BucketId bucket = no_id;
  std::uint32_t unit = no_id;
  bool rebuildable = false;
};

std::vector<Found> find(const Graph& graph, const RecomputeAnalysis& analysis, const BucketLayout& layout) {
  const std::vector<OpId> writer = writers(graph, layout);
  std::vector<Found> found;
  std::vector<std::size_t> at(layout.buckets.size(), no_id);
  auto add = [&](TensorId group, std::uint32_t unit, bool rebuildable) {
    const BucketId bucket = layout.bucket_of[group];
    if (layout.roles[bucket] != BucketRole::activation || writer[bucket] == no_id) return;
    if (at[bucket] == no_id) {
      at[bucket] = found.size();
      found.push_back({writer[bucket], bucket, unit, rebuildable});
    }
    found[at[bucket]].unit = std::max(found[at[bucket]].unit, unit);
  };
  for (std::uint32_t unit = 0; unit < analysis.units.size(); ++unit) {
    for (TensorId id : analysis.units[unit].saved) add(analysis.group[id], unit, true);
    for (TensorId group : analysis.units[unit].inputs) add(group, unit, false);
  }
  for (const auto& [bucket, unit] : with_long_pauses(graph, analysis, layout))
    if (at[bucket] == no_id && layout.roles[bucket] == BucketRole::activation)
      found.push_back({writer[bucket], bucket, unit, false});
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.writer < b.writer; });
  return found;
}

}  // namespace

std::vector<ActivationItem> activation_items(const Graph& graph, const RecomputeAnalysis& analysis,
                                             const BucketLayout& layout) {
  std::vector<ActivationItem> items;
  OpId last = no_id;  // the op that made the last item, if more buckets may join it
  for (const Found& found : find(graph, analysis, layout)) {
    const bool joins = found.rebuildable && found.writer == last;
    if (!joins) {
      const TensorId group = analysis.group[layout.buckets[found.bucket].tensors.front().tensor];
      items.push_back({found.writer,
                       found.unit,
                       {},
                       found.rebuildable,
                       found.rebuildable ? no_id : analysis.remaker[group],
                       0});
    }
    items.back().buckets.push_back(found.bucket);
    items.back().bytes += layout.buckets[found.bucket].bytes;
    last = found.rebuildable ? found.writer : no_id;
  }
  return items;
}

std::vector<ActivationItem> whole_unit_items(const std::vector<ActivationItem>& items) {
  std::vector<ActivationItem> whole;
  std::map<std::uint32_t, std::size_t> of_unit;  // index in `whole` of the unit's item
  for (const ActivationItem& item : items) {
    const auto known = of_unit.find(item.unit);
    if (item.rebuildable && known != of_unit.end()) {
      ActivationItem& unit = whole[known->second];
      unit.buckets.insert(unit.buckets.end(), item.buckets.begin(), item.buckets.end());
      unit.bytes += item.bytes;
      continue;
    }
    if (item.rebuildable) of_unit[item.unit] = whole.size();
    whole.push_back(item);
    whole.back().remaker = no_id;
  }
  return whole;
}

ActivationChoice choice_of(const ActivationItem& item, const Choices& choices) {
  return choices.activations[item.buckets.front()];
}

void choose(const ActivationItem& item, ActivationChoice choice, Choices& choices) {
  for (BucketId id : item.buckets) choices.activations[id] = choice;
}

}  // namespace stowage
