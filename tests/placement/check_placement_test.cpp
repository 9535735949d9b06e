#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/placement/instances.h"

namespace stowage {
namespace {

using placement::test::Items;
using ::testing::HasSubstr;

PlacementResult result_of(const Items& items, std::vector<Bytes> offsets) {
  PlacementResult result;
  for (std::size_t i = 0; i < items.size(); ++i) {
    result.peak = std::max(result.peak, offsets[i] + items[i].bytes);
  }
  result.offsets = std::move(offsets);
  return result;
}

TEST(CheckPlacement, SaysWhatIsWrong) {
  const Items items{{0, 4, 10}, {2, 6, 10}, {4, 8, 10}};
  EXPECT_EQ(check_placement(items, result_of(items, {0, 16, 0}), 16), "");
  EXPECT_THAT(check_placement(items, result_of(items, {0, 8, 0}), 8),
              HasSubstr("item 0 ([0, 4), 10 bytes at 0) and item 1 ([2, 6), 10 bytes at 8) share bytes"));
  EXPECT_THAT(check_placement(items, result_of(items, {0, 16, 16}), 16), HasSubstr("item 2"));
  EXPECT_THAT(check_placement(items, result_of(items, {0, 24, 0}), 16),
              HasSubstr("item 1 ([2, 6), 10 bytes at 24) is not aligned"));
  PlacementResult result = result_of(items, {0, 16, 0});
  result.peak = 25;
  EXPECT_EQ(check_placement(items, result, 16), "the peak is 26, not 25");
  result.offsets.pop_back();
  EXPECT_EQ(check_placement(items, result, 16), "2 offsets for 3 items");
  EXPECT_THAT(check_placement(items, result_of(items, {0, ~Bytes{0}, 0}), 1), HasSubstr("64 bits"));
  EXPECT_EQ(check_placement({}, {}, 1), "");
}

// The judge is judged by the definition, on placements most of which are wrong in few places.
TEST(CheckPlacement, AgreesWithTheDefinition) {
  std::mt19937_64 random(23);
  int sound = 0;
  constexpr int rounds = 3000;
  for (int round = 0; round < rounds; ++round) {
    const Items items = placement::test::random_items(random, 2 + static_cast<int>(random() % 20), 8);
    std::vector<Bytes> offsets = place(items, 1).offsets;
    for (std::uint64_t i = random() % 4; i > 0; --i) offsets[random() % offsets.size()] = random() % 60;
    const bool is_sound = check_placement(items, result_of(items, offsets), 1).empty();
    EXPECT_EQ(is_sound, !placement::test::overlap(items, offsets));
    sound += is_sound ? 1 : 0;
  }
  EXPECT_GT(sound, rounds / 4);
  EXPECT_LT(sound, rounds * 3 / 4);
}

}  // namespace
}  // namespace stowage
