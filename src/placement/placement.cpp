#include "stowage/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include "stowage/error.h"

namespace stowage {
namespace {

// An item with what the orders sort by.
struct Block {
  std::int64_t first = 0;
  std::int64_t last = 0;
  Bytes bytes = 0;
  Bytes aligned = 0;
  Bytes pressure = 0;  // most aligned bytes live at one time within the block's interval

  double duration() const { return static_cast<double>(last) - static_cast<double>(first); }
  double area() const { return duration() * static_cast<double>(aligned); }
};

enum class Fit : std::uint8_t { first, best };
using Order = bool (*)(const Block&, const Block&);

constexpr Bytes nowhere = std::numeric_limits<Bytes>::max();

// Among equal aligned sizes the fuller goes first: the slack of the last one placed is not counted.
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

// The first two serve most inputs; by_start with first fit is interval colouring, so it is optimal
// for equal sizes.
constexpr std::array<Order, 6> orders{by_start, by_size, by_area, by_duration, by_pressure, by_end};

std::string describe(std::size_t index, const PlacementItem& item) {
  return fmt::format("placement item {} ([{}, {}), {} bytes)", index, item.first, item.last, item.bytes);
}

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

// The live bytes at every distinct interval start, one of which is where they peak.
class Pressure {
 public:
  explicit Pressure(std::span<const Block> blocks) : blocks_(blocks) {
    starts_.reserve(blocks.size());
    for (const Block& block : blocks) starts_.push_back(block.first);
    std::sort(starts_.begin(), starts_.end());
    starts_.erase(std::unique(starts_.begin(), starts_.end()), starts_.end());
    add_up();
  }

  // Of the blocks live at one time only the topmost may leave the slack of its rounding unused.
  Bytes bound() const {
    std::vector<Bytes> slack(starts_.size(), 0);
    for (const Block& block : blocks_) {
      if (block.aligned == block.bytes) continue;
      for (std::size_t i = begin(block); i < end(block); ++i) {
        slack[i] = std::max(slack[i], block.aligned - block.bytes);
      }
    }
    Bytes bound = 0;
    for (std::size_t i = 0; i < live_.size(); ++i) bound = std::max(bound, live_[i] - slack[i]);
    return bound;
  }

  Bytes most_within(const Block& block) const {
    const auto at = live_.begin();
    return *std::max_element(at + static_cast<std::ptrdiff_t>(begin(block)),
                             at + static_cast<std::ptrdiff_t>(end(block)));
  }

 private:
  std::size_t index(std::int64_t position) const {
    return static_cast<std::size_t>(std::lower_bound(starts_.begin(), starts_.end(), position) -
                                    starts_.begin());
  }
  std::size_t begin(const Block& block) const { return index(block.first); }
  std::size_t end(const Block& block) const { return index(block.last); }

  void add_up() {
    live_.assign(starts_.size() + 1, 0);  // first the changes; they may wrap, their sums do not
    for (const Block& block : blocks_) {
      live_[begin(block)] += block.aligned;
      live_[end(block)] -= block.aligned;
    }
    std::partial_sum(live_.begin(), live_.end(), live_.begin());
    live_.pop_back();
  }

  std::span<const Block> blocks_;
  std::vector<std::int64_t> starts_;
  std::vector<Bytes> live_;  // by start
};

std::vector<Block> to_blocks(std::span<const PlacementItem> items, Bytes alignment) {
  std::vector<Block> blocks;
  blocks.reserve(items.size());
  for (const PlacementItem& item : items) {
    blocks.push_back({item.first, item.last, item.bytes, align_up(item.bytes, alignment), 0});
  }
  return blocks;
}

// A block that has its place.
struct Placed {
  Bytes offset = 0;
  Bytes end = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// Lowest gap (Fit::first) or tightest gap (Fit::best, the lowest of equals) between those of
// `placed`, which is sorted by offset, that are live together with `block`.
Bytes find_gap(const std::vector<Placed>& placed, const Block& block, Fit fit) {
  Bytes top = 0;
  Bytes tightest = nowhere;
  Bytes chosen = nowhere;
  for (const Placed& other : placed) {
    if (other.last <= block.first || block.last <= other.first) continue;
    if (other.offset > top) {
      const Bytes gap = other.offset - top;
      if (gap >= block.aligned && gap < tightest) {
        if (fit == Fit::first) return top;
        tightest = gap;
        chosen = top;
      }
    }
    top = std::max(top, other.end);
  }
  return chosen != nowhere ? chosen : top;
}

constexpr std::array<Order, 3> search_orders{by_start, by_duration, by_end};
// Bounds the search to a few passes over a long list, to 64 rounds of a short one.
constexpr std::size_t search_turns = 6000;

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

// Places the blocks one after another and keeps the outcome if its peak is below `result.peak`.
// Otherwise returns the place in `sequence` of the block that reached that peak.
std::size_t improve(const std::vector<Block>& blocks, const std::vector<std::uint32_t>& sequence, Fit fit,
                    PlacementResult& result) {
  std::vector<Placed> placed;
  placed.reserve(blocks.size());
  std::vector<Bytes> offsets(blocks.size(), 0);
  Bytes peak = 0;
  for (std::size_t turn = 0; turn < sequence.size(); ++turn) {
    const std::uint32_t index = sequence[turn];
    const Block& block = blocks[index];
    const Bytes offset = find_gap(placed, block, fit);
    peak = std::max(peak, offset + block.bytes);
    if (peak >= result.peak) return turn;
    const Placed entry{offset, offset + block.aligned, block.first, block.last};
    const auto before = [](const Placed& a, const Placed& b) { return a.offset < b.offset; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), entry, before), entry);
    offsets[index] = offset;
  }
  result.offsets = std::move(offsets);
  result.peak = peak;
  return none;
}

std::vector<std::uint32_t> sorted(const std::vector<Block>& blocks, Order order) {
  std::vector<std::uint32_t> sequence(blocks.size());
  std::iota(sequence.begin(), sequence.end(), 0U);
  std::stable_sort(sequence.begin(), sequence.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return order(blocks[a], blocks[b]); });
  return sequence;
}

// Joslin and Clements, "Squeaky Wheel Optimization": the block that spoils the peak gets an earlier
// turn, again and again.
void search(const std::vector<Block>& blocks, std::vector<std::uint32_t> sequence, PlacementResult& result) {
  const std::size_t rounds = std::min<std::size_t>(64, search_turns / blocks.size());
  for (std::size_t round = 0; round < rounds && result.peak > result.lower_bound; ++round) {
    const std::size_t culprit = improve(blocks, sequence, Fit::first, result);
    if (culprit == none) continue;
    const auto at = sequence.begin() + static_cast<std::ptrdiff_t>(culprit);
    const auto to = sequence.begin() + static_cast<std::ptrdiff_t>(culprit / 2);
    std::rotate(to, at, at + 1);
  }
}

}  // namespace

Bytes peak_live_bytes(std::span<const PlacementItem> items) {
  check_items(items, 1);
  const std::vector<Block> blocks = to_blocks(items, 1);
  return Pressure(blocks).bound();
}

PlacementResult place(std::span<const PlacementItem> items, Bytes alignment) {
  check_items(items, alignment);
  std::vector<Block> blocks = to_blocks(items, alignment);
  const Pressure pressure(blocks);
  PlacementResult result;
  result.lower_bound = pressure.bound();
  if (items.empty()) return result;
  result.peak = nowhere;
  for (const Fit fit : {Fit::first, Fit::best}) {
    for (const Order order : orders) {
      if (order == by_pressure && fit == Fit::first) {
        for (Block& block : blocks) block.pressure = pressure.most_within(block);
      }
      improve(blocks, sorted(blocks, order), fit, result);
      if (result.peak <= result.lower_bound) return result;
    }
  }
  for (const Order order : search_orders) search(blocks, sorted(blocks, order), result);
  return result;
}

}  // namespace stowage
