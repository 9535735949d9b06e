#include "offload/plan/problem/units.h"

#include <string_view>
#include <vector>

namespace stowage {

namespace {

std::string_view block_of(std::string_view unit) {
  const std::size_t dot = unit.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : unit.substr(0, dot);
}

}  // namespace

Graph with_joined_units(const Graph& graph, std::uint32_t count) {
  Graph joined = graph;
  joined.unit_names.clear();
  for (std::size_t unit = 0; unit < graph.unit_names.size(); unit += count)
    joined.unit_names.push_back(graph.unit_names[unit]);
  for (Op& op : joined.ops)
    if (op.unit != no_id) op.unit /= count;
  return joined;
}

Graph with_whole_blocks(const Graph& graph) {
  Graph blocks = graph;
  blocks.unit_names.clear();
  std::vector<std::uint32_t> block(graph.unit_names.size());
  std::string_view last;
  for (std::size_t unit = 0; unit < graph.unit_names.size(); ++unit) {
    const std::string_view name = block_of(graph.unit_names[unit]);
    if (name.empty() || name != last) blocks.unit_names.push_back(graph.unit_names[unit]);
    if (!name.empty() && name == last) blocks.unit_names.back() = name;
    last = name;
    block[unit] = static_cast<std::uint32_t>(blocks.unit_names.size() - 1);
  }
  for (Op& op : blocks.ops)
    if (op.unit < block.size()) op.unit = block[op.unit];
  return blocks;
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
