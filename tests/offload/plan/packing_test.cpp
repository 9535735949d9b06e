#include "offload/plan/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace stowage {
namespace {

bool meet(const PackingItem& a, const PackingItem& b) {
  const bool in_time = a.first < b.last && b.first < a.last;
  return in_time || a.first < b.wrap || b.first < a.wrap || (a.wrap > 0 && b.wrap > 0);
}

void expect_apart(const std::vector<PackingItem>& items, const std::vector<Bytes>& offsets, Bytes limit) {
  for (std::size_t a = 0; a < items.size(); ++a) {
    EXPECT_EQ(offsets[a] % 256, 0U);
    EXPECT_LE(offsets[a] + items[a].bytes, limit);
    for (std::size_t b = 0; b < a; ++b) {
      const bool apart =
          offsets[a] + items[a].bytes <= offsets[b] || offsets[b] + items[b].bytes <= offsets[a];
      EXPECT_TRUE(apart || !meet(items[a], items[b])) << a << " and " << b;
    }
  }
}

// First fit by size puts the two of 768 at the bottom and then finds no room for the one that spans both.
TEST(Packing, FillsWhatIsLiveWithoutLoss) {
  const std::vector<PackingItem> items{
      {0, 2, 0, 512}, {0, 1, 0, 1024}, {1, 2, 0, 256}, {1, 3, 0, 768}, {2, 3, 0, 768}};
  const auto offsets = pack(items, 1536, 256, 1000);
  ASSERT_TRUE(offsets);
  expect_apart(items, *offsets, 1536);
  EXPECT_FALSE(pack(items, 1535, 256, 1000));
}

// What lives across the end of the period meets what is there at the beginning.
TEST(Packing, BytesThatWrapAreTakenAtTheBeginningToo) {
  std::vector<PackingItem> items{{5, 9, 2, 512}, {0, 4, 0, 512}};
  EXPECT_FALSE(pack(items, 512, 256, 1000));
  const auto offsets = pack(items, 1024, 256, 1000);
  ASSERT_TRUE(offsets);
  expect_apart(items, *offsets, 1024);
  items[1].first = 2;
  EXPECT_TRUE(pack(items, 512, 256, 1000));
}

// The least height of all orders in which each item is put upon what it meets of those before it: the order
// of any placement's offsets gives no more.
Bytes least_of_all_orders(const std::vector<PackingItem>& items) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Bytes least = ~Bytes{0};
  do {
    std::vector<Bytes> top(items.size(), 0);
    Bytes height = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      Bytes floor = 0;
      for (std::size_t j = 0; j < i; ++j)
        if (meet(items[order[i]], items[order[j]])) floor = std::max(floor, top[order[j]]);
      top[order[i]] = floor + align_up(items[order[i]].bytes, 256);
      height = std::max(height, floor + items[order[i]].bytes);
    }
    least = std::min(least, height);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

// Though what failed once is not searched again, it misses nothing.
TEST(Packing, FindsTheLeastHeightOfAllOrders) {
  std::mt19937_64 random(3);
  int tight = 0;
  for (int instance = 0; instance < 400; ++instance) {
    std::vector<PackingItem> items;
    Bytes live = 0;
    for (int i = 0; i < 6; ++i) {
      const auto first = static_cast<std::int64_t>(random() % 5);
      const auto last = first + 1 + static_cast<std::int64_t>(random() % 3);
      const std::int64_t wrap = last == 7 ? static_cast<std::int64_t>(random() % 3) : 0;
      items.push_back({first, last, wrap, 256 * (1 + random() % 5) - (i == 0 ? 248 : 0)});
    }
    for (std::int64_t time = 0; time < 7; ++time) {
      Bytes now = 0;
      for (const PackingItem& item : items)
        if ((item.first <= time && time < item.last) || time < item.wrap) now += align_up(item.bytes, 256);
      live = std::max(live, now);
    }
    const Bytes least = least_of_all_orders(items);
    SCOPED_TRACE(instance);
    const auto offsets = pack(items, least, 256, 1'000'000);
    ASSERT_TRUE(offsets);
    expect_apart(items, *offsets, least);
    EXPECT_FALSE(pack(items, least - 8, 256, 1'000'000));
    tight += least <= live ? 1 : 0;
  }
  EXPECT_LT(tight, 400) << "all of them take no more than what is live";
}

// Sixteen moments full to the brim, cut at random.
std::vector<PackingItem> tiles(std::mt19937_64& random, std::size_t count) {
  std::vector<PackingItem> cut{{0, 16, 0, 48}};
  while (cut.size() < count) {
    PackingItem& tile = cut[random() % cut.size()];
    PackingItem rest = tile;
    if (random() % 2 == 1) {
      if (tile.last - tile.first < 2) continue;
      const auto length = static_cast<std::uint64_t>(tile.last - tile.first);
      tile.last = rest.first = tile.first + 1 + static_cast<std::int64_t>(random() % (length - 1));
    } else {
      if (tile.bytes < 2) continue;
      tile.bytes = 1 + random() % (tile.bytes - 1);
      rest.bytes -= tile.bytes;
    }
    cut.push_back(rest);
  }
  for (PackingItem& tile : cut) tile.bytes *= 256;
  std::shuffle(cut.begin(), cut.end(), random);
  return cut;
}

// Without what it knows of states that failed it finds three less.
TEST(Packing, FindsNearlyAllTilingsOfARectangle) {
  std::mt19937_64 random(5);
  int found = 0;
  for (int instance = 0; instance < 200; ++instance) {
    const std::vector<PackingItem> items = tiles(random, 40);
    const auto offsets = pack(items, Bytes{48} * 256, 256, 50'000);
    if (!offsets) continue;
    expect_apart(items, *offsets, Bytes{48} * 256);
    ++found;
  }
  EXPECT_GE(found, 198);
}

TEST(Packing, GivesUpAfterItsNodes) {
  const std::vector<PackingItem> items{{0, 1, 0, 256}, {0, 1, 0, 256}};
  EXPECT_FALSE(pack(items, 512, 256, 1));
  EXPECT_TRUE(pack(items, 512, 256, 2));
}

}  // namespace
}  // namespace stowage
