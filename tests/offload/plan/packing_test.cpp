#include "offload/plan/packing.h"

#include <gtest/gtest.h>

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

TEST(Packing, GivesUpAfterItsNodes) {
  const std::vector<PackingItem> items{{0, 1, 0, 256}, {0, 1, 0, 256}};
  EXPECT_FALSE(pack(items, 512, 256, 1));
  EXPECT_TRUE(pack(items, 512, 256, 2));
}

}  // namespace
}  // namespace stowage
