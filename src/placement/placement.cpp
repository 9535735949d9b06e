#include "stowage/placement.h"

#include <algorithm>

#include "src/placement/methods.h"
#include "src/placement/pressure.h"

namespace stowage {
namespace {

// Limits of the brief placement. A branching costs about a microsecond for 25 items, ten for 300.
constexpr std::uint64_t brief_looks = 40'000'000;
constexpr std::size_t most_searched = 512;
constexpr std::uint64_t long_work = 4'000'000;
constexpr std::uint64_t short_nodes = 2'000, long_nodes = 50'000;
constexpr std::uint64_t brief_moves = 5'000, brief_patience = 3'000;  // moves beyond one for each item

// Greedy orders leave some inputs of few items well above the bound that two thousand branchings reach.
void search_briefly(std::span<const PlacementItem> items, PlacementOptions options, PlacementResult& result) {
  options.strategies.squeeze = false;
  options.node_limit = short_nodes;
  placement::improve(items, options, result);
  options.capacity = result.lower_bound + result.lower_bound / 100;
  if (result.peak <= options.capacity) return;
  options.node_limit = std::min(long_nodes, long_work / items.size());
  placement::improve(items, options, result);
}

void squeeze_briefly(std::span<const PlacementItem> items, PlacementOptions options,
                     PlacementResult& result) {
  options.strategies.branch_and_bound = false;
  options.strategies.squeeze_patience = brief_patience;
  options.strategies.squeeze_looks = brief_looks;
  options.capacity = result.lower_bound + result.lower_bound / 128;
  options.node_limit = brief_moves + items.size();
  placement::improve(items, options, result);
}

}  // namespace

Bytes peak_live_bytes(std::span<const PlacementItem> items) {
  placement::check_items(items, 1);
  return placement::Pressure(items, 1).bound();
}

PlacementResult place(std::span<const PlacementItem> items, Bytes alignment) {
  PlacementOptions options;
  options.alignment = alignment;
  options.strategies.greedy_looks = brief_looks;
  PlacementResult result =
      placement::place_greedily(items, alignment, options.strategies, placement::Goal::nearly);
  if (result.peak <= placement::nearly(result.lower_bound)) return result;
  if (items.size() <= most_searched) search_briefly(items, options, result);
  squeeze_briefly(items, options, result);
  return result;
}

PlacementResult solve_placement(std::span<const PlacementItem> items, const PlacementOptions& options) {
  PlacementResult result =
      placement::place_greedily(items, options.alignment, options.strategies, placement::Goal::bound);
  placement::improve(items, options, result);
  return result;
}

}  // namespace stowage
