#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/placement/methods.h"
#include "tests/placement/instances.h"
#include "tests/support/printed_name.h"

namespace stowage {
namespace {

using placement::test::cut_rectangle;
using placement::test::exhaustive_peak;
using placement::test::expect_sound;
using placement::test::Items;
using placement::test::random_items;

PlacementResult greedily(const Items& items) {
  return placement::place_greedily(items, 1, {}, placement::Goal::bound);
}

// No greedy order places these in 60 bytes, as many as are live together.
Items hard_items() {
  std::mt19937_64 random(61);
  for (;;) {
    Items items = cut_rectangle(random, 30, 20, 60);
    if (greedily(items).peak > 60) return items;
  }
}

TEST(SolvePlacement, SmallInputsAreOptimalAndProvenSo) {
  std::mt19937_64 random(67);
  for (int round = 0; round < 400; ++round) {
    Items items = random_items(random, 1 + static_cast<int>(random() % 7), 16);
    for (PlacementItem& item : items) item.first /= 4, item.last = item.first + 1 + (item.last % 9);
    const Bytes alignment = Bytes{1} << (random() % 4);
    PlacementOptions options;
    options.alignment = alignment;
    const PlacementResult result = solve_placement(items, options);
    expect_sound(items, alignment, result);
    EXPECT_TRUE(result.optimal());
    ASSERT_EQ(result.peak, exhaustive_peak(items, alignment)) << "round " << round;
  }
}

TEST(SolvePlacement, CutRectanglesAreFilled) {
  std::mt19937_64 random(71);
  for (const int count : {20, 50, 100, 150}) {
    for (int round = 0; round < 5; ++round) {
      const Items items = cut_rectangle(random, count, 100, 1000);
      const PlacementResult result = solve_placement(items, {});
      expect_sound(items, 1, result);
      EXPECT_EQ(result.peak, 1000U) << count << " pieces, round " << round;
      EXPECT_EQ(result.lower_bound, 1000U);
    }
  }
}

TEST(SolvePlacement, PartsArePlacedApart) {
  // Each part must be searched, and the higher one decides.
  Items items = hard_items();
  const std::size_t half = items.size();
  for (std::size_t i = 0; i < half; ++i) {
    items.push_back({items[i].first + 100, items[i].last + 100, 2 * items[i].bytes});
  }
  const PlacementResult result = solve_placement(items, {});
  expect_sound(items, 1, result);
  EXPECT_EQ(result.peak, 120U);
  PlacementOptions options;
  options.capacity = 130;
  EXPECT_LE(solve_placement(items, options).peak, 130U);
}

TEST(SolvePlacement, EndsWhereTheCapacityIsReached) {
  const Items items = hard_items();
  const Bytes greedy = greedily(items).peak;
  ASSERT_GT(greedy, 60U);
  for (Bytes capacity = 60; capacity <= greedy + 1; ++capacity) {
    PlacementOptions options;
    options.capacity = capacity;
    const PlacementResult result = solve_placement(items, options);
    expect_sound(items, 1, result);
    EXPECT_LE(result.peak, capacity);
  }
  PlacementOptions options;
  options.capacity = greedy;
  options.keep_going = [](const PlacementProgress&) { return false; };
  EXPECT_EQ(solve_placement(items, options).offsets, greedily(items).offsets);
}

TEST(SolvePlacement, SaysThatACapacityIsTooSmall) {
  // Below what is live at once there is nothing to search.
  const Items items = hard_items();
  PlacementOptions options;
  options.capacity = 59;
  options.keep_going = [](const PlacementProgress&) -> bool { throw std::logic_error("searched"); };
  PlacementResult result = solve_placement(items, options);
  EXPECT_GT(result.peak, 59U);
  EXPECT_EQ(result.proven_bound, 60U);
  // Above it a search has to show it.
  for (const Items& few : placement::test::inputs_above_their_bound()) {
    options.keep_going = nullptr;
    options.capacity = peak_live_bytes(few);
    ASSERT_FALSE(placement::test::exhaustive_fit(few, options.capacity));
    result = solve_placement(few, options);
    EXPECT_GT(result.peak, options.capacity);
    EXPECT_EQ(result.lower_bound, options.capacity);
    EXPECT_EQ(result.proven_bound, options.capacity + 1);
  }
}

TEST(SolvePlacement, BoundsAreProven) {
  for (Items items : placement::test::inputs_above_their_bound()) {
    const Bytes best = peak_live_bytes(items) + 1;
    ASSERT_TRUE(placement::test::exhaustive_fit(items, best));
    PlacementResult result = solve_placement(items, {});
    expect_sound(items, 1, result);
    EXPECT_EQ(result.peak, best);
    EXPECT_TRUE(result.optimal());
    // The same in units of 16 bytes, of which each item leaves 5 free.
    for (PlacementItem& item : items) item.bytes = 16 * item.bytes - 5;
    PlacementOptions options;
    options.alignment = 16;
    result = solve_placement(items, options);
    expect_sound(items, 16, result);
    EXPECT_EQ(result.peak, 16 * best - 5);
    EXPECT_TRUE(result.optimal());
  }
}

TEST(SolvePlacement, ANodeLimitIsDeterministicAndKept) {
  std::mt19937_64 random(79);
  const Items items = cut_rectangle(random, 300, 150, 100'000);
  std::uint64_t nodes = 0;
  PlacementOptions options;
  options.node_limit = 20'000;
  options.keep_going = [&](const PlacementProgress& progress) {
    EXPECT_GT(progress.nodes, nodes);
    EXPECT_LE(progress.proven_bound, progress.peak);
    nodes = progress.nodes;
    return true;
  };
  const PlacementResult result = solve_placement(items, options);
  expect_sound(items, 1, result);
  EXPECT_GT(nodes, 0U);
  EXPECT_LE(nodes, 20'000U);
  nodes = 0;
  EXPECT_EQ(solve_placement(items, options).offsets, result.offsets);
  options.node_limit = 0;
  EXPECT_EQ(solve_placement(items, options).offsets, greedily(items).offsets);
}

TEST(SolvePlacement, HugeSizesAreOrdinary) {
  Items items = hard_items();
  for (PlacementItem& item : items) item.bytes <<= 48U;
  EXPECT_EQ(solve_placement(items, {}).peak, Bytes{60} << 48U);
  for (PlacementItem& item : items) item.bytes = (item.bytes >> 48U << 50U) - 1;
  expect_sound(items, 1, solve_placement(items, {}));
  const Items two{{0, 2, (Bytes{1} << 62U) - 1}, {1, 3, Bytes{1} << 62U}};
  EXPECT_EQ(solve_placement(two, {}).peak, (Bytes{1} << 63U) - 1);
}

struct Public {
  const char* file;
  Bytes capacity;
};

void PrintTo(const Public& instance, std::ostream* out) { *out << instance.file; }

class SolvePublicInstances : public ::testing::TestWithParam<Public> {};

TEST_P(SolvePublicInstances, Fit) {
  const std::optional<Items> items = placement::test::public_instance(GetParam().file);
  if (!items) GTEST_SKIP() << GetParam().file << " is absent: set STOWAGE_TEST_DATA";
  PlacementOptions options;
  options.capacity = GetParam().capacity;
  options.node_limit = 100'000;
  const PlacementResult result = solve_placement(*items, options);
  expect_sound(*items, 1, result);
  EXPECT_LE(result.peak, GetParam().capacity);
}

INSTANTIATE_TEST_SUITE_P(Placement, SolvePublicInstances,
                         ::testing::Values(Public{"minimalloc-A.1048576.csv", 1'048'576},
                                           Public{"minimalloc-C.1048576.csv", 1'048'576},
                                           Public{"minimalloc-E.1048576.csv", 1'048'576},
                                           Public{"minimalloc-G.1048576.csv", 1'048'576},
                                           Public{"minimalloc-I.1048576.csv", 1'048'576},
                                           Public{"minimalloc-K.1048576.csv", 1'048'576},
                                           Public{"resnet50.csv", 1'515'472'556},
                                           Public{"G_1.csv", 3'030'937'746}),
                         stowage::test::printed_name);

}  // namespace
}  // namespace stowage
