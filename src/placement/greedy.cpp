#include "src/placement/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include "src/placement/blocks.h"
#include "src/placement/pressure.h"
#include "stowage/error.h"

namespace stowage::placement {
namespace {

using Order = bool (*)(const Block&, const Block&);

constexpr Bytes no_peak = std::numeric_limits<Bytes>::max();

// Among equal aligned sizes the fuller item goes first: the slack of the last item placed does not count.
bool by_bytes(const Block& a, const Block& b) { return a.bytes > b.bytes; }
bool by_start(const Block& a, const Block& b) {
  return a.first != b.first ? a.first < b.first : by_bytes(a, b);
}
bool by_end(const Block& a, const Block& b) { return a.last != b.last ? a.last > b.last : by_bytes(a, b); }
bool by_size(const Block& a, const Block& b) {
  if (a.aligned != b.aligned) return a.aligned > b.aligned;
  return a.duration() != b.duration() ? a.duration() > b.duration() : by_bytes(a, b);
}
bool by_area(const Block& a, const Block& b) {
  return a.area() != b.area() ? a.area() > b.area() : by_bytes(a, b);
}
bool by_duration(const Block& a, const Block& b) {
  return a.duration() != b.duration() ? a.duration() > b.duration() : by_bytes(a, b);
}
bool by_pressure(const Block& a, const Block& b) {
  return a.pressure != b.pressure ? a.pressure > b.pressure : by_size(a, b);
}

// The first two orders serve most inputs; by_start with first fit is interval colouring, so it is optimal for
// equal sizes.
constexpr std::array<Order, 6> orders{by_start, by_size, by_area, by_duration, by_pressure, by_end};

std::string describe(std::size_t index, const PlacementItem& item) {
  return fmt::format("placement item {} ([{}, {}), {} bytes)", index, item.first, item.last, item.bytes);
}

std::vector<std::uint32_t> sorted(const std::vector<Block>& blocks, Order order) {
  std::vector<std::uint32_t> sequence(blocks.size());
  std::iota(sequence.begin(), sequence.end(), 0U);
  std::stable_sort(sequence.begin(), sequence.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return order(blocks[a], blocks[b]); });
  return sequence;
}

constexpr std::array<Order, 3> search_orders{by_start, by_duration, by_end};
// Bounds the search to a few passes over a long list, to 64 rounds of a short one.
constexpr std::size_t search_turns = 6000;
constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

// Places blocks in one order after another, and keeps the best outcome.
class Greedy {
 public:
  Greedy(const std::vector<Block>& blocks, Bytes enough, std::uint64_t looks, PlacementResult& result)
      : blocks_(blocks), enough_(enough), most_looks_(looks), result_(result), placed_(blocks) {}

  bool finished() const { return result_.peak <= enough_ || placed_.looks() >= most_looks_; }

  void run(Order order, Fit fit) { improve(sorted(blocks_, order), fit, order == by_start); }

  // Repeatedly gives the block that spoils the peak an earlier turn (Joslin and Clements, "Squeaky
  // Wheel Optimization").
  void search(Order order) {
    std::vector<std::uint32_t> sequence = sorted(blocks_, order);
    const std::size_t rounds = std::min<std::size_t>(64, search_turns / blocks_.size());
    for (std::size_t round = 0; round < rounds && !finished(); ++round) {
      const std::size_t culprit = improve(sequence, Fit::first, false);
      if (culprit == none) continue;
      const auto at = sequence.begin() + static_cast<std::ptrdiff_t>(culprit);
      const auto to = sequence.begin() + static_cast<std::ptrdiff_t>(culprit / 2);
      std::rotate(to, at, at + 1);
    }
  }

 private:
  // Places the blocks one after another and keeps the outcome if its peak is below the best. Otherwise
  // returns the place in `sequence` of the block that reached the best peak.
  std::size_t improve(const std::vector<std::uint32_t>& sequence, Fit fit, bool starts_rise) {
    placed_.clear();
    std::vector<Bytes> offsets(blocks_.size(), 0);
    Bytes peak = 0;
    for (std::size_t turn = 0; turn < sequence.size(); ++turn) {
      const std::uint32_t index = sequence[turn];
      const Block& block = blocks_[index];
      const Bytes offset =
          starts_rise ? placed_.find_gap_of_latest(block, fit) : placed_.find_gap(block, fit);
      peak = std::max(peak, offset + block.bytes);
      if (peak >= result_.peak || placed_.looks() > most_looks_) return turn;
      placed_.add(block, offset);
      offsets[index] = offset;
    }
    result_.offsets = std::move(offsets);
    result_.peak = peak;
    return none;
  }

  const std::vector<Block>& blocks_;
  Bytes enough_;
  std::uint64_t most_looks_;
  PlacementResult& result_;
  PlacedBlocks placed_;
};

void run_orders(Greedy& greedy, std::span<const PlacementItem> items, const Pressure& pressure,
                std::vector<Block>& blocks, const PlacementStrategies& strategies) {
  for (const Fit fit : {Fit::first, Fit::best}) {
    if (fit == Fit::best && !strategies.best_fit) continue;
    for (const Order order : orders) {
      if (order == by_pressure && fit == Fit::first) {
        for (std::size_t i = 0; i < items.size(); ++i) blocks[i].pressure = pressure.most_within(items[i]);
      }
      greedy.run(order, fit);
      if (greedy.finished()) return;
    }
  }
  if (!strategies.squeaky_wheel) return;
  for (const Order order : search_orders) greedy.search(order);
}

void place_somehow(std::span<const PlacementItem> items, Bytes alignment, PlacementResult& result) {
  result.offsets = sweep(items, alignment);
  result.peak = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    result.peak = std::max(result.peak, result.offsets[i] + items[i].bytes);
  }
}

}  // namespace

void check_items(std::span<const PlacementItem> items, Bytes alignment) {
  if (!std::has_single_bit(alignment)) {
    throw InvalidInput(fmt::format("placement alignment {} is no power of two: pass one", alignment));
  }
  Bytes room = std::numeric_limits<Bytes>::max() / 2;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].first >= items[i].last) {
      throw InvalidInput(describe(i, items[i]) + " is never live: give it a `last` after its `first`");
    }
    if (items[i].bytes == 0) throw InvalidInput(describe(i, items[i]) + " is empty: leave it out");
    if (items[i].bytes > room || align_up(items[i].bytes, alignment) > room) {
      throw InvalidInput(describe(i, items[i]) + " makes the sum of sizes overflow: check its size");
    }
    room -= align_up(items[i].bytes, alignment);
  }
}

PlacementResult place_greedily(std::span<const PlacementItem> items, Bytes alignment,
                               const PlacementStrategies& strategies, Goal goal) {
  check_items(items, alignment);
  const Pressure pressure(items, alignment);
  PlacementResult result;
  result.lower_bound = result.proven_bound = pressure.bound();
  if (items.empty()) return result;
  result.peak = no_peak;
  std::vector<Block> blocks = to_blocks(items, alignment);
  const Bytes low = goal == Goal::bound ? result.lower_bound : nearly(result.lower_bound);
  Greedy greedy(blocks, low, strategies.greedy_looks, result);
  run_orders(greedy, items, pressure, blocks, strategies);
  if (result.peak == no_peak) place_somehow(items, alignment, result);
  return result;
}

}  // namespace stowage::placement
