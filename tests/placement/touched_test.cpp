#include "src/placement/methods.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace stowage::placement {
namespace {

std::vector<PlacementItem> random_items(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<PlacementItem> items;
  for (int i = 0; i < 1500; ++i) {
    const auto first = static_cast<std::int64_t>(random() % 1000);
    items.push_back(
        {first, first + 1 + static_cast<std::int64_t>(random() % 40), 1 + random() % (24U << 20U)});
  }
  return items;
}

// By looking at every position and granule.
TEST(MostTouched, IsWhatItsDefinitionSays) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t end) { return static_cast<std::int64_t>(random() % end); };
  for (int round = 0; round < 300; ++round) {
    const Bytes granule = 1 + random() % 20;
    std::vector<PlacementItem> items;
    std::vector<Bytes> offsets;
    for (int i = 0; i < 8; ++i) {
      const std::int64_t first = below(10);
      items.push_back({first, first + 1 + below(5), 1 + random() % 30});
      offsets.push_back(random() % 60);
    }
    std::uint64_t most = 0;
    for (std::int64_t at = 0; at < 15; ++at) {
      std::set<Bytes> granules;
      for (std::size_t i = 0; i < items.size(); ++i)
        for (Bytes byte = 0; byte < items[i].bytes; ++byte)
          if (items[i].first <= at && at < items[i].last) granules.insert((offsets[i] + byte) / granule);
      most = std::max<std::uint64_t>(most, granules.size());
    }
    EXPECT_EQ(most_touched(items, offsets, granule), most);
  }
}

TEST(PlaceForGranules, GivesPlacesThatTouchFewAtOnce) {
  constexpr Bytes granule = 2_MiB;
  std::uint64_t touched = 0, of_low_ones = 0;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    const std::vector<PlacementItem> items = random_items(seed);
    PlacementResult result;
    result.offsets = place_for_granules(items, 512, granule);
    for (std::size_t i = 0; i < items.size(); ++i)
      result.peak = std::max(result.peak, result.offsets[i] + items[i].bytes);
    const Bytes live = peak_live_bytes(items);
    result.lower_bound = result.proven_bound = live;
    EXPECT_EQ(check_placement(items, result, 512), "");
    touched += most_touched(items, result.offsets, granule);
    of_low_ones += most_touched(items, place(items, 512).offsets, granule);
    EXPECT_LE(most_touched(items, result.offsets, granule) * granule, live + live / 20) << seed;
    EXPECT_EQ(place_for_granules(items, 512, granule), result.offsets);
  }
  EXPECT_LT(touched, of_low_ones);
  EXPECT_TRUE(place_for_granules({}, 512, granule).empty());
}

}  // namespace
}  // namespace stowage::placement
