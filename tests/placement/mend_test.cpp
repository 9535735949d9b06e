#include "src/placement/mend.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "src/placement/greedy.h"

namespace stowage::placement {
namespace {

constexpr Bytes alignment = 256;

// What streams through a step: few sizes, each live for a short while, and now and then one for long.
std::vector<PlacementItem> stream(std::uint32_t seed, std::size_t count) {
  constexpr Bytes sizes[] = {3072, 4096, 9216, 12288, 16384};
  std::minstd_rand dice(seed);
  std::vector<PlacementItem> items;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::int64_t>(i + dice() % 3);
    const std::int64_t life = dice() % 16 == 0 ? 60 : 3 + static_cast<std::int64_t>(dice() % 12);
    items.push_back({first, first + life, sizes[dice() % std::size(sizes)]});
  }
  return items;
}

// Each item above all that came before it.
PlacementResult stacked(const std::vector<PlacementItem>& items) {
  PlacementResult result;
  for (const PlacementItem& item : items) {
    result.offsets.push_back(result.peak);
    result.peak += align_up(item.bytes, alignment);
  }
  result.lower_bound = result.proven_bound = peak_live_bytes(items);
  return result;
}

TEST(Mend, LowersWhatGreedyOrdersLeave) {
  int lowered = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const std::vector<PlacementItem> items = stream(seed, 700);
    const PlacementResult before = place_greedily(items, alignment, Goal::nearly);
    PlacementResult after = before;
    mend(items, alignment, after);
    EXPECT_EQ(check_placement(items, after, alignment), "") << seed;
    EXPECT_LE(after.peak, before.peak) << seed;
    EXPECT_EQ(after.lower_bound, before.lower_bound);
    if (after.peak < before.peak) ++lowered;
  }
  EXPECT_GE(lowered, 10);
}

TEST(Mend, LeavesAloneWhatIsNear) {
  const std::vector<PlacementItem> items{{0, 2, 4096}, {1, 3, 4096}, {2, 4, 4096}};
  PlacementResult result = place_greedily(items, alignment, Goal::nearly);
  const PlacementResult before = result;
  mend(items, alignment, result);
  EXPECT_EQ(result.offsets, before.offsets);
}

TEST(Mend, BringsDownWhatStandsAloneHighUp) {
  const std::vector<PlacementItem> items{{0, 2, 4096}, {2, 4, 4096}, {4, 6, 4096}};
  PlacementResult result = stacked(items);
  mend(items, alignment, result);
  EXPECT_EQ(result.peak, 4096);
  EXPECT_EQ(check_placement(items, result, alignment), "");
}

// Of three that are live together none can go below another one.
TEST(Mend, EndsWhereNothingCanBeLowered) {
  std::vector<PlacementItem> items{{0, 4, 4096}, {1, 5, 4096}, {2, 6, 4096}, {10, 11, 256}};
  PlacementResult result = stacked(items);
  mend(items, alignment, result);
  EXPECT_EQ(result.peak, 3 * 4096);
  EXPECT_EQ(check_placement(items, result, alignment), "");
}

TEST(Mend, IsDeterministic) {
  const std::vector<PlacementItem> items = stream(3, 700);
  PlacementResult a = place_greedily(items, alignment, Goal::nearly);
  PlacementResult b = a;
  mend(items, alignment, a);
  mend(items, alignment, b);
  EXPECT_EQ(a.offsets, b.offsets);
}

}  // namespace
}  // namespace stowage::placement
