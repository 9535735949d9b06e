#include "stowage/placement.h"

#include <algorithm>

#include "src/placement/greedy.h"
#include "src/placement/mend.h"
#include "src/placement/pressure.h"
#include "src/placement/solver.h"

namespace stowage {
namespace {

// Bounds on the short search: one branching costs about a microsecond for 25 items, ten for 300.
constexpr std::size_t most_searched = 512;
constexpr std::uint64_t long_work = 4'000'000;
constexpr std::uint64_t short_nodes = 2'000, long_nodes = 50'000;

// Greedy orders leave some inputs of few items well above the bound that two thousand branchings reach.
void search_briefly(std::span<const PlacementItem> items, Bytes alignment, PlacementResult& result) {
  PlacementOptions options;
  options.alignment = alignment;
  options.node_limit = short_nodes;
  placement::improve(items, options, result);
  options.capacity = result.lower_bound + result.lower_bound / 100;
  if (result.peak <= options.capacity) return;
  options.node_limit = std::min(long_nodes, long_work / items.size());
  placement::improve(items, options, result);
}

}  // namespace

Bytes peak_live_bytes(std::span<const PlacementItem> items) {
  placement::check_items(items, 1);
  return placement::Pressure(items, 1).bound();
}

PlacementResult place(std::span<const PlacementItem> items, Bytes alignment) {
  PlacementResult result = placement::place_greedily(items, alignment, placement::Goal::nearly);
  if (result.peak <= placement::nearly(result.lower_bound)) return result;
  if (items.size() <= most_searched) search_briefly(items, alignment, result);
  placement::mend(items, alignment, result);
  return result;
}

PlacementResult solve_placement(std::span<const PlacementItem> items, const PlacementOptions& options) {
  PlacementResult result = placement::place_greedily(items, options.alignment, placement::Goal::bound);
  placement::improve(items, options, result);
  return result;
}

}  // namespace stowage
