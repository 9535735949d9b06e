#include "src/placement/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace stowage::placement {
namespace {

struct Standing {
  Block block;
  Bytes offset = 0;
};

bool meet(const Block& a, const Block& b) { return a.first < b.last && b.first < a.last; }

// Tries zero and every top: one of them is the start of each gap.
Bytes slow_gap(const std::vector<Standing>& standing, const Block& block, Fit fit) {
  std::vector<Standing> live;
  for (const Standing& s : standing)
    if (meet(s.block, block)) live.push_back(s);
  Bytes best = 0, best_size = 0;
  bool found = false;
  std::vector<Bytes> tops{0};
  for (const Standing& s : live) tops.push_back(s.offset + s.block.aligned);
  std::sort(tops.begin(), tops.end());
  for (const Bytes top : tops) {
    Bytes end = std::numeric_limits<Bytes>::max();
    bool inside = false;
    for (const Standing& s : live) {
      inside = inside || (s.offset <= top && top < s.offset + s.block.aligned);
      if (s.offset >= top) end = std::min(end, s.offset);
    }
    const bool is_tighter = !found || end - top < best_size;
    if (inside || end - top < block.aligned || !is_tighter) continue;
    found = true;
    best = top;
    best_size = end - top;
    if (fit == Fit::first) return best;
  }
  return best;
}

std::vector<Block> random_blocks(std::mt19937_64& random, int count, int longest) {
  std::vector<Block> blocks;
  for (int i = 0; i < count; ++i) {
    const auto first = static_cast<std::int64_t>(random() % 50'000);
    const std::int64_t length = 1 + static_cast<std::int64_t>(random()) % longest;
    const Bytes bytes = 1 + random() % 50;
    blocks.push_back({first, first + std::abs(length) + 1, bytes, bytes, 0});
  }
  return blocks;
}

// So many that they are kept in windows; some cross all of them.
TEST(PlacedBlocks, FindTheGapsThatLookingAtAllFinds) {
  std::mt19937_64 random(5);
  std::vector<Block> blocks = random_blocks(random, 20'000, 40);
  for (std::size_t i = 0; i < blocks.size(); i += 1000) blocks[i].first = 0, blocks[i].last = 60'000;
  PlacedBlocks placed(blocks);
  for (const Fit fit : {Fit::first, Fit::best}) {
    placed.clear();
    std::vector<Standing> standing;
    for (std::size_t i = 0; i < blocks.size(); i += 8) {
      const Bytes offset = placed.find_gap(blocks[i], fit);
      ASSERT_EQ(offset, slow_gap(standing, blocks[i], fit)) << i;
      placed.add(blocks[i], offset);
      standing.push_back({blocks[i], offset});
    }
  }
}

TEST(PlacedBlocks, TheLatestIsFoundTheSameGapWithoutThoseThatEnded) {
  std::mt19937_64 random(6);
  for (const int count : {300, 20'000}) {
    std::vector<Block> blocks = random_blocks(random, count, 400);
    std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.first < b.first; });
    PlacedBlocks all(blocks), latest(blocks);
    for (const Block& block : blocks) {
      const Bytes offset = all.find_gap(block, Fit::best);
      ASSERT_EQ(latest.find_gap_of_latest(block, Fit::best), offset);
      all.add(block, offset);
      latest.add(block, offset);
    }
    EXPECT_LT(latest.looks(), all.looks());
  }
}

}  // namespace
}  // namespace stowage::placement
