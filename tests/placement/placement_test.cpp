#include "stowage/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "stowage/error.h"
#include "tests/placement/instances.h"
#include "tests/support/printed_name.h"

namespace stowage {
namespace {

using placement::test::exhaustive_peak;
using placement::test::expect_sound;
using placement::test::Items;
using placement::test::peak_by_positions;
using placement::test::random_items;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Placement, NothingToPlace) {
  const PlacementResult result = place({}, 256);
  EXPECT_TRUE(result.offsets.empty());
  EXPECT_EQ(result.peak, 0U);
  EXPECT_EQ(result.lower_bound, 0U);
  EXPECT_EQ(peak_live_bytes({}), 0U);
}

TEST(Placement, OneItemStandsAtZeroAndIsNotRoundedUp) {
  const PlacementResult result = place(Items{{3, 4, 100}}, 256);
  EXPECT_THAT(result.offsets, ElementsAre(0U));
  EXPECT_EQ(result.peak, 100U);
  EXPECT_EQ(result.lower_bound, 100U);
}

TEST(Placement, IntervalsAreHalfOpen) {
  const PlacementResult result = place(Items{{0, 2, 64}, {2, 4, 64}}, 64);
  EXPECT_THAT(result.offsets, ElementsAre(0U, 0U));
  EXPECT_EQ(result.peak, 64U);
}

TEST(Placement, NegativePositionsAreOrdinary) {
  const PlacementResult result = place(Items{{-5, 0, 64}, {-1, 3, 64}, {0, 3, 64}}, 64);
  EXPECT_EQ(result.peak, 128U);
}

TEST(Placement, BoundCountsRoundingOfAllButTheTopmost) {
  const Items items{{0, 2, 10}, {0, 2, 200}, {1, 2, 300}};
  const PlacementResult result = place(items, 256);
  EXPECT_EQ(peak_live_bytes(items), 510U);
  // 256 + 256 + 512 without the largest slack, 246.
  EXPECT_EQ(result.lower_bound, 778U);
  EXPECT_EQ(result.peak, 778U);
}

TEST(Placement, LaterItemsFillTheGapThatDeadOnesLeave) {
  // 512 dies, and both halves must go where it was.
  const Items items{{0, 2, 512}, {0, 4, 256}, {2, 4, 256}, {2, 4, 256}};
  const PlacementResult result = place(items, 256);
  expect_sound(items, 256, result);
  EXPECT_EQ(result.peak, 768U);
}

TEST(Placement, EqualSizesAreOptimal) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    Items items = random_items(random, 1 + static_cast<int>(random() % 80), 1);
    for (PlacementItem& item : items) item.bytes = 1000;
    const PlacementResult result = place(items, 256);
    expect_sound(items, 256, result);
    const Bytes live = peak_live_bytes(items) / 1000;
    EXPECT_EQ(result.peak, (live - 1) * 1024 + 1000);
    EXPECT_EQ(result.peak, result.lower_bound);
  }
}

// So many that only colouring from left to right finds the optimum.
TEST(Placement, ManyEqualSizesAreOptimal) {
  std::mt19937_64 random(19);
  for (int round = 0; round < 20; ++round) {
    Items items;
    for (int i = 0; i < 600; ++i) {
      const auto first = static_cast<std::int64_t>(random() % 2000);
      items.push_back({first, first + 1 + static_cast<std::int64_t>(random() % 300), 512});
    }
    const PlacementResult result = place(items, 256);
    EXPECT_EQ(result.peak, peak_live_bytes(items));
  }
}

TEST(Placement, RandomItemsNeverOverlap) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    const Items items = random_items(random, 1 + static_cast<int>(random() % 60), 5000);
    const Bytes alignment = Bytes{1} << (random() % 10);
    const PlacementResult result = place(items, alignment);
    expect_sound(items, alignment, result);
    EXPECT_EQ(peak_live_bytes(items), peak_by_positions(items));
  }
}

TEST(Placement, IsDeterministic) {
  std::mt19937_64 random(13);
  const Items items = random_items(random, 200, 100000);
  EXPECT_EQ(place(items, 256).offsets, place(items, 256).offsets);
}

TEST(Placement, SmallInputsAreCloseToTheExhaustiveOptimum) {
  std::mt19937_64 random(17);
  double worst = 1;
  int optimal = 0;
  constexpr int rounds = 60;
  for (int round = 0; round < rounds; ++round) {
    Items items = random_items(random, 6, 16);
    for (PlacementItem& item : items) item.first /= 3, item.last = item.first + 1 + (item.last % 9);
    const double ratio =
        static_cast<double>(place(items, 1).peak) / static_cast<double>(exhaustive_peak(items));
    ASSERT_GE(ratio, 1);
    worst = std::max(worst, ratio);
    optimal += ratio == 1 ? 1 : 0;
  }
  EXPECT_LE(worst, 1);
  EXPECT_EQ(optimal, rounds);
}

TEST(Placement, RefusesBadItemsByNumber) {
  const auto message = [](const Items& items, Bytes alignment) -> std::string {
    try {
      place(items, alignment);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({{0, 1, 8}, {4, 4, 8}}, 1), HasSubstr("item 1 ([4, 4), 8 bytes) is never live"));
  EXPECT_THAT(message({{0, 1, 0}}, 1), HasSubstr("item 0 ([0, 1), 0 bytes) is empty"));
  EXPECT_THAT(message({{0, 1, ~Bytes{0}}}, 256), HasSubstr("overflow"));
  EXPECT_THAT(message({{0, 1, Bytes{1} << 62}, {0, 1, Bytes{1} << 62}}, 1), HasSubstr("item 1"));
  EXPECT_THAT(message({{0, 1, 8}}, 0), HasSubstr("alignment 0"));
  EXPECT_THAT(message({{0, 1, 8}}, 24), HasSubstr("alignment 24"));
  EXPECT_THROW(peak_live_bytes(Items{{1, 0, 8}}), InvalidInput);
}

struct Expectation {
  const char* file;
  Bytes bound;
  double worst_ratio = 1.01;  // what planning needs of the short search
};

void PrintTo(const Expectation& of, std::ostream* out) { *out << of.file; }

class PublicInstances : public ::testing::TestWithParam<Expectation> {};

TEST_P(PublicInstances, AreSoundAndClose) {
  const std::optional<Items> items = placement::test::public_instance(GetParam().file);
  if (!items) GTEST_SKIP() << GetParam().file << " is absent: set STOWAGE_TEST_DATA";
  ASSERT_GT(items->size(), 100U);
  const PlacementResult result = place(*items, 1);
  expect_sound(*items, 1, result);
  if (GetParam().bound != 0) {
    EXPECT_EQ(result.lower_bound, GetParam().bound);
  }
  const double ratio = static_cast<double>(result.peak) / static_cast<double>(result.lower_bound);
  EXPECT_LE(ratio, GetParam().worst_ratio);
}

INSTANTIATE_TEST_SUITE_P(
    Placement, PublicInstances,
    ::testing::Values(Expectation{"minimalloc-A.1048576.csv", 0}, Expectation{"minimalloc-C.1048576.csv", 0},
                      Expectation{"minimalloc-E.1048576.csv", 0}, Expectation{"minimalloc-G.1048576.csv", 0},
                      Expectation{"minimalloc-I.1048576.csv", 0}, Expectation{"minimalloc-K.1048576.csv", 0},
                      Expectation{"resnet50.csv", 1515472556, 1.001}, Expectation{"G_1.csv", 3030937746, 1}),
    stowage::test::printed_name);

}  // namespace
}  // namespace stowage
