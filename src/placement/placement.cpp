#include "stowage/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include "src/placement/pressure.h"
#include "src/placement/sweep.h"
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

std::vector<Block> to_blocks(std::span<const PlacementItem> items, Bytes alignment) {
  std::vector<Block> blocks;
  blocks.reserve(items.size());
  for (const PlacementItem& item : items) {
    blocks.push_back({item.first, item.last, item.bytes, align_up(item.bytes, alignment), 0});
  }
  return blocks;
}

std::vector<std::uint32_t> sorted(const std::vector<Block>& blocks, Order order) {
  std::vector<std::uint32_t> sequence(blocks.size());
  std::iota(sequence.begin(), sequence.end(), 0U);
  std::stable_sort(sequence.begin(), sequence.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return order(blocks[a], blocks[b]); });
  return sequence;
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
// Blocks that all passes together may look at, a third of a second's work: ten passes over 8,000 blocks.
constexpr std::uint64_t most_looks = 300'000'000;

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

// Places blocks in one order after another, and keeps the best outcome.
class Greedy {
 public:
  Greedy(const std::vector<Block>& blocks, PlacementResult& result) : blocks_(blocks), result_(result) {}

  bool finished() const { return result_.peak <= result_.lower_bound || looks_ >= most_looks; }

  void run(Order order, Fit fit) { improve(sorted(blocks_, order), fit, order == by_start); }

  // Joslin and Clements, "Squeaky Wheel Optimization": the block that spoils the peak gets an earlier
  // turn, again and again.
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
  // returns the place in `sequence` of the block that reached that peak.
  std::size_t improve(const std::vector<std::uint32_t>& sequence, Fit fit, bool starts_rise) {
    std::vector<Placed> placed;
    std::size_t many = 64;
    std::vector<Bytes> offsets(blocks_.size(), 0);
    Bytes peak = 0;
    for (std::size_t turn = 0; turn < sequence.size(); ++turn) {
      const std::uint32_t index = sequence[turn];
      const Block& block = blocks_[index];
      if (starts_rise && placed.size() > many) {
        std::erase_if(placed, [&](const Placed& other) { return other.last <= block.first; });
        many = 64 + 2 * placed.size();
      }
      looks_ += placed.size();
      const Bytes offset = find_gap(placed, block, fit);
      peak = std::max(peak, offset + block.bytes);
      if (peak >= result_.peak || looks_ > most_looks) return turn;
      const Placed entry{offset, offset + block.aligned, block.first, block.last};
      const auto before = [](const Placed& a, const Placed& b) { return a.offset < b.offset; };
      placed.insert(std::upper_bound(placed.begin(), placed.end(), entry, before), entry);
      offsets[index] = offset;
    }
    result_.offsets = std::move(offsets);
    result_.peak = peak;
    return none;
  }

  const std::vector<Block>& blocks_;
  PlacementResult& result_;
  std::uint64_t looks_ = 0;
};

void place_somehow(std::span<const PlacementItem> items, Bytes alignment, PlacementResult& result) {
  result.offsets = placement::sweep(items, alignment);
  result.peak = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    result.peak = std::max(result.peak, result.offsets[i] + items[i].bytes);
  }
}

}  // namespace

Bytes peak_live_bytes(std::span<const PlacementItem> items) {
  check_items(items, 1);
  return placement::Pressure(items, 1).bound();
}

PlacementResult place(std::span<const PlacementItem> items, Bytes alignment) {
  check_items(items, alignment);
  const placement::Pressure pressure(items, alignment);
  PlacementResult result;
  result.lower_bound = result.proven_bound = pressure.bound();
  if (items.empty()) return result;
  result.peak = nowhere;
  std::vector<Block> blocks = to_blocks(items, alignment);
  Greedy greedy(blocks, result);
  for (const Fit fit : {Fit::first, Fit::best}) {
    for (const Order order : orders) {
      if (order == by_pressure && fit == Fit::first) {
        for (std::size_t i = 0; i < items.size(); ++i) blocks[i].pressure = pressure.most_within(items[i]);
      }
      greedy.run(order, fit);
      if (greedy.finished()) break;
    }
    if (greedy.finished()) break;
  }
  for (const Order order : search_orders) greedy.search(order);
  if (result.peak == nowhere) place_somehow(items, alignment, result);
  return result;
}

}  // namespace stowage
