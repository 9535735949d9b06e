#include "allocator/pieces.h"

#include <gtest/gtest.h>

namespace stowage::caching {
namespace {

using Runs = std::vector<Interval>;

TEST(Pieces, AreA64thOfTheirRunAtMost) {
  EXPECT_EQ(Pieces::granules_each(1), 1u);
  EXPECT_EQ(Pieces::granules_each(127), 1u);
  EXPECT_EQ(Pieces::granules_each(128), 2u);
  EXPECT_EQ(Pieces::granules_each(512), 8u);  // 1 GiB: 64 pieces
  EXPECT_EQ(Pieces::granules_each(1023), 8u);
  EXPECT_EQ(Pieces::granules_each(1 << 20), 8u);
}

TEST(Pieces, HoldTheirGranulesUntilTheyGo) {
  Pieces pieces;
  pieces.add({10, 17}, 3);
  EXPECT_EQ(pieces.of(9), (Interval{9, 10}));
  EXPECT_EQ(pieces.of(10), (Interval{10, 13}));
  EXPECT_EQ(pieces.of(12), (Interval{10, 13}));
  EXPECT_EQ(pieces.of(16), (Interval{16, 17}));
  EXPECT_EQ(pieces.of(17), (Interval{17, 18}));
  pieces.remove({10, 13});
  EXPECT_EQ(pieces.of(11), (Interval{11, 12}));
  EXPECT_EQ(pieces.of(14), (Interval{13, 16}));
}

TEST(Pieces, OnlyWholeOnesAreFound) {
  Pieces pieces;
  pieces.add({10, 22}, 4);
  const auto all = [](Interval) { return true; };
  EXPECT_EQ(whole_pieces({{8, 22}}, pieces, 100, all), (Runs{{8, 22}}));
  EXPECT_EQ(whole_pieces({{8, 22}}, pieces, 5, all), (Runs{{14, 22}}));  // more, since pieces go whole
  EXPECT_EQ(whole_pieces({{11, 21}}, pieces, 100, all), (Runs{{14, 18}}));
  EXPECT_EQ(whole_pieces({{8, 13}, {15, 24}}, pieces, 100, all), (Runs{{18, 24}, {8, 10}}));
  const auto apart = [](Interval piece) { return piece.begin != 14; };
  EXPECT_EQ(whole_pieces({{8, 22}}, pieces, 100, apart), (Runs{{18, 22}, {8, 14}}));
}

}  // namespace
}  // namespace stowage::caching
