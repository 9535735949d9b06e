#include "src/tokens/merge_table.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

using Ids = std::vector<std::int32_t>;

Ids merged(const MergeTable& table, Ids ids) {
  table.apply(ids);
  return ids;
}

TEST(MergeTable, EarlierMergesFirstThenTheLeftmost) {
  MergeTable table;
  table.add({2, 3}, 23);
  table.add({1, 2}, 12);
  table.add({1, 1}, 11);
  table.add({12, 3}, 123);
  EXPECT_EQ(merged(table, {}), Ids{});
  EXPECT_EQ(merged(table, {1}), Ids{1});
  EXPECT_EQ(merged(table, {1, 2, 3}), (Ids{1, 23}));
  EXPECT_EQ(merged(table, {1, 2, 2, 3}), (Ids{12, 23}));
  EXPECT_EQ(merged(table, {1, 1, 1}), (Ids{11, 1}));
  EXPECT_EQ(merged(table, {1, 1, 1, 1, 2}), (Ids{11, 1, 12}));
}

TEST(MergeTable, AMergeThatComesAgainTakesItsLaterPlace) {
  MergeTable table;
  table.add({1, 2}, 12);
  table.add({2, 3}, 23);
  EXPECT_EQ(merged(table, {1, 2, 3}), (Ids{12, 3}));
  table.add({1, 2}, 12);
  EXPECT_EQ(merged(table, {1, 2, 3}), (Ids{1, 23}));
}

TEST(MergeTable, LongRunsTakeLittleTime) {
  MergeTable table;
  for (std::int32_t level = 0; level < 20; ++level) table.add({level, level}, level + 1);
  EXPECT_EQ(merged(table, Ids(std::size_t{1} << 20, 0)), Ids{20});
}

TEST(MergeTable, KnowsWhatItMakes) {
  MergeTable table;
  table.add({1, 2}, 12);
  EXPECT_TRUE(table.makes(12));
  EXPECT_FALSE(table.makes(1));
}

}  // namespace
}  // namespace stowage
