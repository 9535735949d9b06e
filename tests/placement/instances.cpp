#include "tests/placement/instances.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>

namespace stowage::placement::test {
namespace {

bool together(const PlacementItem& a, const PlacementItem& b) { return a.first < b.last && b.first < a.last; }

bool share(const PlacementItem& a, Bytes at_a, const PlacementItem& b, Bytes at_b) {
  return together(a, b) && at_a < at_b + b.bytes && at_b < at_a + a.bytes;
}

// A piece of a rectangle: an item and its offset.
struct Piece {
  PlacementItem item;
  Bytes offset = 0;
};

// Whether it was large enough to be cut.
bool cut(std::mt19937_64& random, std::vector<Piece>& pieces, std::size_t index) {
  Piece& piece = pieces[index];
  Piece rest = piece;
  const auto length = static_cast<std::uint64_t>(piece.item.last - piece.item.first);
  const bool across = random() % 2 == 0;
  if (across ? piece.item.bytes < 2 : length < 2) return false;
  if (across) {
    rest.item.bytes = 1 + random() % (piece.item.bytes - 1);
    rest.offset += piece.item.bytes -= rest.item.bytes;
  } else {
    rest.item.first = piece.item.last =
        piece.item.first + static_cast<std::int64_t>(1 + random() % (length - 1));
  }
  pieces.push_back(rest);
  return true;
}

}  // namespace

Items random_items(std::mt19937_64& random, int count, Bytes max_bytes) {
  Items items;
  for (int i = 0; i < count; ++i) {
    const auto first = static_cast<std::int64_t>(random() % 60);
    const auto length = static_cast<std::int64_t>(1 + random() % 20);
    items.push_back({first, first + length, 1 + random() % max_bytes});
  }
  return items;
}

Items cut_rectangle(std::mt19937_64& random, int count, std::int64_t length, Bytes bytes) {
  const Bytes base = 1 + bytes / 20;
  std::vector<Piece> pieces{{{0, length, bytes - base}, base}};
  const auto area = [](const Piece& piece) {
    return static_cast<Bytes>(piece.item.last - piece.item.first) * piece.item.bytes;
  };
  while (pieces.size() < static_cast<std::size_t>(count - 1)) {
    // Of two pieces the larger, so that few remain tiny or huge.
    const std::size_t a = random() % pieces.size(), b = random() % pieces.size();
    cut(random, pieces, area(pieces[a]) > area(pieces[b]) ? a : b);
  }
  Items items{{0, length, base}};
  for (const Piece& piece : pieces) items.push_back(piece.item);
  std::shuffle(items.begin(), items.end(), random);
  return items;
}

bool overlap(const Items& items, const std::vector<Bytes>& offsets) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (share(items[i], offsets[i], items[j], offsets[j])) return true;
    }
  }
  return false;
}

void expect_sound(const Items& items, Bytes alignment, const PlacementResult& result) {
  ASSERT_EQ(result.offsets.size(), items.size());
  EXPECT_EQ(check_placement(items, result, alignment), "");
  EXPECT_FALSE(overlap(items, result.offsets));
  Bytes peak = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(result.offsets[i] % alignment, 0U);
    peak = std::max(peak, result.offsets[i] + items[i].bytes);
  }
  EXPECT_EQ(result.peak, peak);
  EXPECT_GE(result.peak, result.proven_bound);
  EXPECT_GE(result.proven_bound, result.lower_bound);
  EXPECT_GE(result.lower_bound, peak_live_bytes(items));
}

Bytes exhaustive_peak(const Items& items, Bytes alignment) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Bytes best = ~Bytes{0};
  do {
    std::vector<Bytes> offsets(items.size(), 0);
    Bytes peak = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const PlacementItem& item = items[order[k]];
      Bytes at = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t m = 0; m < k; ++m) {
          const PlacementItem& other = items[order[m]];
          if (!share(item, at, other, offsets[order[m]])) continue;
          at = align_up(offsets[order[m]] + other.bytes, alignment);
          moved = true;
        }
      }
      offsets[order[k]] = at;
      peak = std::max(peak, at + item.bytes);
    }
    best = std::min(best, peak);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

namespace {

// Sorted by offset, each item of a placement in which none can be let down stands on the highest top of those
// before it that it meets.
bool stack(const Items& items, Bytes capacity, Bytes least, std::vector<Bytes>& tops) {
  bool all = true;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (tops[i] != 0) continue;
    all = false;
    Bytes offset = 0;
    for (std::size_t j = 0; j < items.size(); ++j) {
      if (tops[j] != 0 && together(items[i], items[j])) offset = std::max(offset, tops[j]);
    }
    if (offset < least || offset + items[i].bytes > capacity) continue;
    tops[i] = offset + items[i].bytes;
    if (stack(items, capacity, offset, tops)) return true;
    tops[i] = 0;
  }
  return all;
}

}  // namespace

bool exhaustive_fit(const Items& items, Bytes capacity) {
  std::vector<Bytes> tops(items.size(), 0);
  return stack(items, capacity, 0, tops);
}

const std::vector<Items>& inputs_above_their_bound() {
  static const std::vector<Items> inputs{
      {{5, 7, 3}, {6, 7, 4}, {1, 7, 1}, {4, 6, 3}, {0, 1, 3}, {3, 5, 2}, {3, 6, 1}, {2, 3, 3}, {1, 4, 4}},
      {{1, 2, 4}, {5, 7, 3}, {2, 5, 2}, {0, 1, 3}, {4, 6, 1}, {2, 6, 3}, {4, 6, 2}, {6, 7, 4}, {1, 4, 4}},
      {{1, 7, 1}, {5, 7, 2}, {3, 5, 3}, {6, 8, 4}, {7, 8, 4}, {4, 7, 1}, {4, 6, 2}, {3, 4, 4}, {0, 8, 2}},
      {{0, 3, 2}, {4, 6, 2}, {1, 5, 1}, {3, 4, 3}, {2, 6, 1}, {1, 2, 3}, {5, 6, 2}, {2, 6, 1}, {0, 1, 4}},
      {{3, 6, 1},
       {4, 7, 3},
       {2, 6, 2},
       {1, 8, 3},
       {1, 3, 3},
       {1, 2, 4},
       {7, 8, 1},
       {7, 8, 4},
       {2, 4, 2},
       {6, 7, 4}},
      {{5, 6, 3},
       {3, 5, 2},
       {2, 4, 1},
       {4, 6, 3},
       {0, 3, 4},
       {0, 1, 4},
       {3, 6, 1},
       {2, 4, 1},
       {1, 5, 2},
       {2, 6, 1}}};
  return inputs;
}

Bytes peak_by_positions(const Items& items) {
  Bytes peak = 0;
  for (std::int64_t at = 0; at < 200; ++at) {
    Bytes live = 0;
    for (const PlacementItem& item : items) live += item.first <= at && at < item.last ? item.bytes : 0;
    peak = std::max(peak, live);
  }
  return peak;
}

Instance instance_of(const Items& items, Bytes alignment) {
  std::vector<Instance> parts = split(items, alignment);
  EXPECT_EQ(parts.size(), 1U);
  return parts.at(0);
}

std::optional<Items> public_instance(const std::string& file) {
  const auto path = std::filesystem::path(STOWAGE_TEST_DATA) / "placement" / file;
  if (!std::filesystem::exists(path)) return std::nullopt;
  std::ifstream stream(path);
  std::string line;
  Items items;
  while (std::getline(stream, line)) {
    long long id = 0, first = 0, last = 0;
    unsigned long long bytes = 0;
    if (std::sscanf(line.c_str(), "%lld,%lld,%lld,%llu", &id, &first, &last, &bytes) != 4) continue;
    items.push_back({first, last, bytes});
  }
  return items;
}

}  // namespace stowage::placement::test
