#include "src/placement/windows.h"

#include <algorithm>

namespace stowage::placement {
namespace {

constexpr std::size_t least_starts = 64;
constexpr std::size_t most_in_one_window = 1024;

// Returns the average number of other blocks that are live where a block starts.
std::size_t mean_crossing(std::span<const Block> blocks, const std::vector<std::int64_t>& starts) {
  const auto before = [&](std::int64_t position) {
    return static_cast<std::size_t>(std::lower_bound(starts.begin(), starts.end(), position) -
                                    starts.begin());
  };
  std::size_t crossings = 0;
  for (const Block& block : blocks) crossings += before(block.last) - before(block.first);
  return crossings / blocks.size();
}

}  // namespace

Windows::Windows(std::span<const Block> blocks) {
  if (blocks.size() <= most_in_one_window) return;
  std::vector<std::int64_t> starts;
  starts.reserve(blocks.size());
  for (const Block& block : blocks) starts.push_back(block.first);
  std::sort(starts.begin(), starts.end());
  const std::size_t step = std::max(least_starts, mean_crossing(blocks, starts));
  for (std::size_t i = step; i < starts.size(); i += step) begins_.push_back(starts[i]);
  begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
}

std::size_t Windows::at(std::int64_t position) const {
  return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), position) -
                                  begins_.begin());
}

}  // namespace stowage::placement
