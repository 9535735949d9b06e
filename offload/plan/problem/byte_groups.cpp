#include "offload/plan/problem/byte_groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace stowage {
namespace {

// The first and last place in the execution order at which an op uses an alias group.
struct Need {
  TensorId group = no_id;
  std::size_t first = 0, last = 0;
  bool in_backward_alone = true;  // no replay and no update uses the group
};

// Returns, by tensor, the final sum that a gradient becomes part of; for any other tensor itself.
std::vector<TensorId> sums(const Graph& graph) {
  std::vector<TensorId> sum(graph.tensors.size());
  std::iota(sum.begin(), sum.end(), 0U);
  for (OpId id = static_cast<OpId>(graph.ops.size()); id-- > 0;) {
    const Op& op = graph.op(id);
    if (op.kernel != "accumulate" || op.writes.empty()) continue;
    for (const TensorId part : op.reads) sum[part] = sum[op.writes.front()];
  }
  return sum;
}

// Returns the need of each alias group, by the group's tensor id.
std::vector<Need> needs(const Graph& graph, const RecomputeAnalysis& analysis) {
  std::vector<Need> needs(graph.tensors.size());
  for (std::size_t place = 0; place < analysis.sequence.size(); ++place) {
    const Op& op = graph.op(analysis.sequence[place]);
    for (const std::vector<TensorId>* operands : {&op.reads, &op.writes})
      for (const TensorId tensor : *operands) {
        Need& need = needs[analysis.group[tensor]];
        if (need.group == no_id) need = {analysis.group[tensor], place, place};
        need.last = place;
        need.in_backward_alone &= op.phase == Phase::backward;
      }
  }
  return needs;
}

}  // namespace

std::vector<TensorId> byte_groups(const Graph& graph, const RecomputeAnalysis& analysis) {
  std::vector<TensorId> groups = analysis.group;
  if (graph.gradient_groups == 1) return groups;
  const std::vector<TensorId> sum = sums(graph);
  // Needs of partial sums, by final sum and size.
  std::map<std::pair<TensorId, Bytes>, std::vector<Need>> parts;
  for (const Need& need : needs(graph, analysis)) {
    const TensorId group = need.group;
    const bool is_part = group != no_id && analysis.boundary[group] && need.in_backward_alone &&
                         graph.tensor(group).kind == TensorKind::gradient && sum[group] != group;
    if (is_part) parts[{sum[group], graph.tensor(group).bytes()}].push_back(need);
  }
  std::vector<TensorId> joined(graph.tensors.size());
  std::iota(joined.begin(), joined.end(), 0U);
  for (auto& [of, all] : parts) {
    std::stable_sort(all.begin(), all.end(), [](const Need& a, const Need& b) { return a.first < b.first; });
    std::vector<Need> rows;  // by bucket: its first group, and the places of its newest one
    for (const Need& part : all) {
      const auto row =
          std::find_if(rows.begin(), rows.end(), [&](const Need& at) { return at.last < part.first; });
      if (row == rows.end()) {
        rows.push_back(part);
      } else {
        joined[part.group] = row->group;
        row->last = part.last;
      }
    }
  }
  for (TensorId& group : groups) group = joined[group];
  return groups;
}

}  // namespace stowage
