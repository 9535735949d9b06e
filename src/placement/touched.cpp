
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "src/placement/blocks.h"
#include "src/placement/methods.h"
#include "src/placement/pressure.h"

namespace stowage::placement {
namespace {

// An item comes or goes. At equal times items go before others come.
struct Change {
  std::int64_t position = 0;
  bool comes = false;
  std::uint32_t item = 0;
};

std::vector<Change> changes_of(std::span<const PlacementItem> items) {
  std::vector<Change> changes;
  changes.reserve(2 * items.size());
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    changes.push_back({items[i].first, true, i});
    changes.push_back({items[i].last, false, i});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tie(a.position, a.comes, a.item) < std::tie(b.position, b.comes, b.item);
  });
  return changes;
}

// An order by a product of powers of size and duration. The table has size, area, powers between and beyond,
// and duration.
struct Power {
  double of_size = 1, of_duration = 0;
};
constexpr Power powers[] = {{1, 0}, {1, 1}, {1, 0.5}, {1, 0.25}, {1, 0.75}, {1, 0.125}, {0.5, 1}, {0, 1}};

std::vector<std::uint32_t> sorted(std::span<const Block> blocks, Power power) {
  std::vector<double> weights;
  weights.reserve(blocks.size());
  for (const Block& block : blocks)
    weights.push_back(std::pow(static_cast<double>(block.aligned), power.of_size) *
                      std::pow(block.duration(), power.of_duration));
  std::vector<std::uint32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return weights[a] > weights[b]; });
  return order;
}

std::vector<Bytes> place_in_order(std::span<const Block> blocks, const std::vector<std::uint32_t>& order,
                                  Fit fit, PlacedBlocks& placed) {
  placed.clear();
  std::vector<Bytes> offsets(blocks.size());
  for (const std::uint32_t index : order) {
    offsets[index] = placed.find_gap(blocks[index], fit);
    placed.add(blocks[index], offsets[index]);
  }
  return offsets;
}

}  // namespace

std::uint64_t most_touched(std::span<const PlacementItem> items, std::span<const Bytes> offsets,
                           Bytes granule) {
  std::vector<std::uint32_t> touches;
  std::uint64_t touched = 0, most = 0;
  for (const Change& change : changes_of(items)) {
    const Bytes offset = offsets[change.item], end = offset + items[change.item].bytes;
    const std::uint64_t last = (end - 1) / granule;
    if (touches.size() <= last) touches.resize(last + 1, 0);
    for (std::uint64_t at = offset / granule; at <= last; ++at) {
      if (change.comes)
        touched += touches[at]++ == 0 ? 1 : 0;
      else
        touched -= --touches[at] == 0 ? 1 : 0;
    }
    most = std::max(most, touched);
  }
  return most;
}

std::vector<Bytes> place_for_granules(std::span<const PlacementItem> items, Bytes alignment, Bytes granule) {
  check_items(items, alignment);
  if (items.empty()) return {};
  const std::uint64_t least = (Pressure(items, 1).bound() + granule - 1) / granule;
  const std::vector<Block> blocks = to_blocks(items, alignment);
  PlacedBlocks placed(blocks);
  std::vector<Bytes> best;
  std::uint64_t fewest = std::numeric_limits<std::uint64_t>::max();
  for (const Power power : powers) {
    const std::vector<std::uint32_t> order = sorted(blocks, power);
    for (const Fit fit : {Fit::first, Fit::best}) {
      std::vector<Bytes> offsets = place_in_order(blocks, order, fit, placed);
      const std::uint64_t touched = most_touched(items, offsets, granule);
      if (touched < fewest) {
        fewest = touched;
        best = std::move(offsets);
      }
      if (fewest <= least) return best;
    }
  }
  return best;
}

}  // namespace stowage::placement
