#include "src/placement/turn_order.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace stowage::placement {
namespace {

using Sequence = std::vector<std::uint32_t>;

void append(Sequence& sequence, const Sequence& block, int times) {
  for (int i = 0; i < times; ++i) sequence.insert(sequence.end(), block.begin(), block.end());
}

TEST(Repeats, FewPeriodsAreNone) {
  Sequence sequence;
  append(sequence, {1, 2, 3, 4, 5, 6}, 3);
  EXPECT_TRUE(find_repeats(sequence).empty());
  append(sequence, {1, 2, 3, 4, 5, 6}, 1);
  const std::vector<Repeat> expected{{0, 24, 6}};
  EXPECT_EQ(find_repeats(sequence), expected);
  EXPECT_TRUE(find_repeats({}).empty());
  EXPECT_TRUE(find_repeats(Sequence{1, 2}).empty());
}

TEST(Repeats, WhateverIsFoundRepeatsAndDoesNotOverlap) {
  std::mt19937 random(5);
  std::size_t all = 0;
  for (int round = 0; round < 300; ++round) {
    Sequence sequence;
    while (sequence.size() < 200) {
      Sequence block(1 + random() % 9);
      for (std::uint32_t& value : block) value = static_cast<std::uint32_t>(random() % 4);
      append(sequence, block, 1 + static_cast<int>(random() % 9));
    }
    std::size_t behind = 0;
    for (const Repeat& repeat : find_repeats(sequence)) {
      ASSERT_GE(repeat.begin, behind);
      ASSERT_LE(repeat.end, sequence.size());
      ASSERT_GE(repeat.end - repeat.begin, 4 * repeat.period);
      for (std::size_t i = repeat.begin + repeat.period; i < repeat.end; ++i)
        ASSERT_EQ(sequence[i], sequence[i - repeat.period]);
      behind = repeat.end;
      ++all;
    }
  }
  EXPECT_GT(all, 600u);
}

}  // namespace
}  // namespace stowage::placement
