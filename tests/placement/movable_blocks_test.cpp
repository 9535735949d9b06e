#include "src/placement/movable_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace stowage::placement {
namespace {

// Short ones, some of a hundred windows, and a few of all.
std::vector<Block> random_blocks(std::mt19937_64& random) {
  std::vector<Block> blocks;
  for (int i = 0; i < 1500; ++i) {
    const auto first = static_cast<std::int64_t>(random() % 3000);
    const std::int64_t life = i % 50 == 0  ? 3000
                              : i % 7 == 0 ? 400
                                           : 1 + static_cast<std::int64_t>(random() % 9);
    const Bytes bytes = 1 + random() % 100;
    blocks.push_back({first, first + life, bytes, bytes, 0});
  }
  return blocks;
}

using Ranges = std::vector<std::pair<Bytes, std::uint32_t>>;

// By looking at all.
Ranges expected(const std::vector<Block>& blocks, const std::vector<Bytes>& offsets, const Block& block,
                bool by_end) {
  Ranges ranges;
  for (std::uint32_t id = 0; id < blocks.size(); ++id) {
    const Block& other = blocks[id];
    if (offsets[id] == no_offset || other.first >= block.last || block.first >= other.last) continue;
    ranges.emplace_back(offsets[id] + (by_end ? other.aligned : 0), id);
  }
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

Ranges found(const std::vector<PlacedBlock>& blocks, bool by_end) {
  Ranges ranges;
  for (const PlacedBlock& block : blocks) ranges.emplace_back(by_end ? block.end : block.offset, block.id);
  const auto lower = [](const auto& a, const auto& b) { return a.first < b.first; };
  EXPECT_TRUE(std::is_sorted(ranges.begin(), ranges.end(), lower));
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST(MovableBlocks, AgreeWithAListOfAll) {
  std::mt19937_64 random(5);
  const std::vector<Block> blocks = random_blocks(random);
  MovableBlocks standing(blocks);
  std::vector<Bytes> offsets(blocks.size(), no_offset);
  for (int turn = 0; turn < 20'000; ++turn) {
    const auto id = static_cast<std::uint32_t>(random() % blocks.size());
    if (standing.has(id)) {
      standing.remove(id);
      offsets[id] = no_offset;
    } else {
      standing.add(id, offsets[id] = random() % 4 * 50);
    }
    if (turn % 20 != 0) continue;
    standing.look_around(id);
    ASSERT_EQ(found(standing.by_offset(), false), expected(blocks, offsets, blocks[id], false)) << turn;
    ASSERT_EQ(found(standing.by_end(), true), expected(blocks, offsets, blocks[id], true)) << turn;
  }
  EXPECT_EQ(standing.offsets(), offsets);
}

}  // namespace
}  // namespace stowage::placement
