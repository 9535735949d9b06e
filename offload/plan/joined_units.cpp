#include "offload/plan/joined_units.h"

#include <algorithm>

namespace stowage {

Graph with_joined_units(const Graph& graph, std::uint32_t count) {
  Graph joined = graph;
  joined.unit_names.clear();
  for (std::size_t unit = 0; unit < graph.unit_names.size(); unit += count)
    joined.unit_names.push_back(graph.unit_names[unit]);
  for (Op& op : joined.ops)
    if (op.unit != no_id) op.unit /= count;
  return joined;
}

double crossing_share(const std::vector<ActivationItem>& items) {
  double all = 1, crossing = 0;
  for (const ActivationItem& item : items) {
    all += static_cast<double>(item.bytes);
    if (!item.rebuildable) crossing += static_cast<double>(item.bytes);
  }
  return crossing / all;
}

}  // namespace stowage
