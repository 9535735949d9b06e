#include "src/placement/squeeze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/placement/methods.h"
#include "tests/placement/instances.h"

namespace stowage {
namespace {

using placement::Block;
using placement::Squeeze;
using placement::test::cut_rectangle;
using placement::test::expect_sound;
using placement::test::Items;
using ::testing::ElementsAre;

// What streams through a step: few sizes, each live for a short while, and now and then one for long.
Items stream(std::uint32_t seed, std::size_t count) {
  constexpr Bytes sizes[] = {3072, 4096, 9216, 12288, 16384};
  std::minstd_rand dice(seed);
  Items items;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::int64_t>(i + dice() % 3);
    const std::int64_t life = dice() % 16 == 0 ? 60 : 3 + static_cast<std::int64_t>(dice() % 12);
    items.push_back({first, first + life, sizes[dice() % std::size(sizes)]});
  }
  return items;
}

const std::function<bool()> always = [] { return true; };

// Without the search, so that only the squeeze improves on the greedy orders.
PlacementOptions squeezing(std::uint64_t nodes) {
  PlacementOptions options;
  options.node_limit = nodes;
  options.strategies.branch_and_bound = false;
  return options;
}

// The picture of squeeze.h.
TEST(Squeeze, EvictsTheLighterBlock) {
  const std::vector<Block> blocks{{0, 7, 2, 2, 0}, {3, 6, 1, 1, 0}, {0, 5, 2, 2, 0}};
  PlacementStrategies strategies;
  strategies.squeeze_stages = {};
  Squeeze squeeze(blocks, strategies, 1, 5);
  int moves = 0;
  EXPECT_TRUE(squeeze.reach(5, std::vector<Bytes>{0, 3, 5}, [&] { return ++moves > 0; }));
  EXPECT_THAT(squeeze.offsets(), ElementsAre(0, 4, 2));
  EXPECT_EQ(moves, 2);
}

TEST(Squeeze, TheTopmostNeedsNoRoomForItsSlack) {
  const std::vector<Block> blocks{{0, 2, 256, 256, 0}, {0, 2, 10, 256, 0}};
  const PlacementStrategies strategies;
  Squeeze squeeze(blocks, strategies, 256, 266);
  EXPECT_TRUE(squeeze.reach(266, std::vector<Bytes>{256, 0}, always));
  EXPECT_THAT(squeeze.offsets(), ElementsAre(0, 256));
}

TEST(Squeeze, FillsStreamsToTheirBound) {
  int filled = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const Items items = stream(seed, 2000);
    const PlacementResult result = solve_placement(items, squeezing(200'000));
    expect_sound(items, 1, result);
    EXPECT_LE(result.peak, result.lower_bound + result.lower_bound / 100) << seed;
    if (result.optimal()) ++filled;
  }
  EXPECT_GE(filled, 18);
}

TEST(Squeeze, MoreMovesAreNeverWorse) {
  std::mt19937_64 random(11);
  const Items items = cut_rectangle(random, 1500, 1500, 1'000'000);
  Bytes peak = solve_placement(items, squeezing(0)).peak;
  const Bytes greedy = peak;
  for (const std::uint64_t nodes : {1'000, 5'000, 20'000, 100'000}) {
    const PlacementResult result = solve_placement(items, squeezing(nodes));
    expect_sound(items, 1, result);
    EXPECT_LE(result.peak, peak) << nodes;
    peak = result.peak;
  }
  EXPECT_LT(peak - 1'000'000, (greedy - 1'000'000) / 2);
}

}  // namespace
}  // namespace stowage
