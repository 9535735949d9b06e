#include "allocator/block.h"

#include <gtest/gtest.h>

#include <set>

#include "stowage/error.h"

namespace stowage::caching {
namespace {

TEST(BlockStore, MakesEachBlockOnceUntilItIsRecycled) {
  BlockStore store;
  std::set<Block*> blocks;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(blocks.insert(&store.make()).second);
  Block& one = **blocks.begin();
  one.live = true;
  one.users.push_back(nullptr);
  store.recycle(one);
  EXPECT_EQ(&store.make(), &one);
  EXPECT_FALSE(one.live);
  EXPECT_TRUE(one.users.empty());
}

TEST(BlockTable, HoldsABlockForEachUnit) {
  BlockTable table(1_GiB * 1024);  // of which the host backs two pages
  Block block;
  table.at(0) = &block;
  table.at(1_GiB * 1024 - BlockTable::unit) = &block;
  EXPECT_EQ(table.at(0), &block);
  EXPECT_EQ(table.at(BlockTable::unit), nullptr);
  EXPECT_EQ(table.at(1_GiB * 1024 - BlockTable::unit), &block);
}

TEST(BlockTable, FailsWithATypedError) { EXPECT_THROW(BlockTable{~Bytes{0} / 4}, OutOfMemory); }

}  // namespace
}  // namespace stowage::caching
