#include "src/placement/windows.h"

#include <gtest/gtest.h>

namespace stowage::placement {
namespace {

std::vector<Block> one_after_another(std::int64_t count, std::int64_t life) {
  std::vector<Block> blocks;
  for (std::int64_t i = 0; i < count; ++i) blocks.push_back({i, i + life, 1, 1, 0});
  return blocks;
}

TEST(Windows, FewBlocksHaveOne) {
  const Windows windows(one_after_another(1024, 1));
  EXPECT_EQ(windows.count(), 1U);
  EXPECT_EQ(windows.at(-5), 0U);
  EXPECT_EQ(windows.at(5000), 0U);
}

TEST(Windows, HoldSixtyFourStarts) {
  const Windows windows(one_after_another(2048, 1));
  EXPECT_EQ(windows.count(), 32U);
  EXPECT_EQ(windows.at(63), 0U);
  EXPECT_EQ(windows.at(64), 1U);
  EXPECT_EQ(windows.at(2047), 31U);
  EXPECT_TRUE(windows.starts_before(63, 1));
  EXPECT_FALSE(windows.starts_before(64, 1));
}

TEST(Windows, HoldAsManyStartsAsBlocksCross) {
  // Of blocks that live 200 positions some 200 are live at each; fewer at the end.
  const std::size_t count = Windows(one_after_another(2000, 200)).count();
  EXPECT_GE(count, 10U);
  EXPECT_LE(count, 11U);
}

}  // namespace
}  // namespace stowage::placement
