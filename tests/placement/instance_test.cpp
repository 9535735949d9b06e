#include "src/placement/instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/placement/instances.h"

namespace stowage::placement {
namespace {

using test::instance_of;
using test::Items;
using ::testing::ElementsAre;

TEST(Instance, FallsApartWhereNothingIsLiveAcross) {
  const Items items{{4, 6, 1}, {0, 2, 1}, {1, 4, 1}, {6, 9, 1}, {5, 6, 1}};
  const std::vector<Instance> parts = split(items, 1);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_THAT(parts[0].indices, ElementsAre(1U, 2U));
  EXPECT_THAT(parts[1].indices, ElementsAre(0U, 4U));
  EXPECT_THAT(parts[2].indices, ElementsAre(3U));
  EXPECT_TRUE(split({}, 1).empty());
}

TEST(Instance, KeepsTheSectionsThatHoldTheOthers) {
  // Starts at 0, 10, 20 and 30; ends at 25, 30 and 40. Between 20 and 25 three are live, from 30 on two.
  const Items items{{0, 25, 8}, {10, 30, 16}, {20, 40, 24}, {30, 40, 8}};
  const Instance instance = instance_of(items);
  EXPECT_EQ(instance.sections, 2);
  EXPECT_EQ(instance.unit, 8U);
  EXPECT_EQ(instance.cells(), 5U);
  const auto expect_item = [&](std::size_t i, int first, int last, std::int64_t units) {
    EXPECT_EQ(instance.items[i].first, first);
    EXPECT_EQ(instance.items[i].last, last);
    EXPECT_EQ(instance.items[i].units, units);
  };
  expect_item(0, 0, 1, 1);
  expect_item(1, 0, 1, 2);
  expect_item(2, 0, 2, 3);
  expect_item(3, 1, 2, 1);
}

// Two items meet on the short axis exactly where they do on the long one, and no section repeats another.
TEST(Instance, MeetsAreKept) {
  std::mt19937_64 random(29);
  for (int round = 0; round < 300; ++round) {
    const Items items = test::random_items(random, 1 + static_cast<int>(random() % 40), 9);
    for (const Instance& part : split(items, 4)) {
      std::vector<std::set<std::size_t>> live(static_cast<std::size_t>(part.sections));
      for (std::size_t i = 0; i < part.items.size(); ++i) {
        const PlacementItem& a = items[part.indices[i]];
        ASSERT_LT(part.items[i].first, part.items[i].last);
        ASSERT_LE(part.items[i].last, part.sections);
        EXPECT_EQ(static_cast<Bytes>(part.items[i].units) * part.unit, align_up(a.bytes, 4));
        EXPECT_EQ(align_up(a.bytes, 4) - part.items[i].slack, a.bytes);
        for (int s = part.items[i].first; s < part.items[i].last; ++s)
          live[static_cast<std::size_t>(s)].insert(i);
        for (std::size_t j = 0; j < i; ++j) {
          const PlacementItem& b = items[part.indices[j]];
          EXPECT_EQ(part.items[i].meets(part.items[j]), a.first < b.last && b.first < a.last);
        }
      }
      for (std::size_t s = 1; s < live.size(); ++s) {
        EXPECT_FALSE(std::includes(live[s].begin(), live[s].end(), live[s - 1].begin(), live[s - 1].end()));
        EXPECT_FALSE(std::includes(live[s - 1].begin(), live[s - 1].end(), live[s].begin(), live[s].end()));
      }
    }
  }
}

// What fits in bytes fits in units, and the next peak is the next one that some item can reach.
TEST(Instance, DeadlinesAndPeaksAreThoseOfBytes) {
  const Items items{{0, 2, 10}, {0, 2, 32}, {0, 2, 60}};
  const Instance instance = instance_of(items, 16);
  EXPECT_EQ(instance.unit, 16U);
  for (Bytes capacity = 0; capacity < 200; ++capacity) {
    const Deadline deadline = instance.deadline(capacity);
    Bytes next = ~Bytes{0};
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (Bytes units = 0; units < 20; ++units) {
        const Bytes end = units * 16 + items[i].bytes;
        EXPECT_EQ(
            static_cast<std::int64_t>(units) + instance.items[i].units <= deadline.of(static_cast<int>(i)),
            end <= capacity);
        if (end > capacity) next = std::min(next, end);
      }
    }
    if (capacity >= 60) {
      EXPECT_EQ(instance.next_peak(capacity), next);
    }
  }
}

}  // namespace
}  // namespace stowage::placement
