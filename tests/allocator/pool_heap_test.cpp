#include "allocator/pool_heap.h"

#include <gtest/gtest.h>

namespace stowage::caching {
namespace {

constexpr Bytes granule = 2_MiB;

class PoolHeapTest : public testing::Test {
 protected:
  PoolHeap heap{{0, 100 * granule}, granule};
  LaneClock a{0, {}}, b{1, {}};

  Place take(Bytes bytes, const LaneClock& lane) {
    const Place place = *heap.find(bytes, lane, Need::memory, PoolHeap::quick);
    heap.spare().for_each_missing(place.granules, [&](Interval run) { missing.push_back(run); });
    for (const Interval& run : missing) heap.note_mapped(run);
    missing.clear();
    heap.take(place);
    return place;
  }
  std::vector<Interval> missing;
};

TEST_F(PoolHeapTest, SaysWhatAPlaceNeeds) {
  EXPECT_FALSE(heap.find(5_MiB, a, Need::waits, PoolHeap::all));
  const Place fresh = *heap.find(5_MiB, a, Need::memory, PoolHeap::quick);
  EXPECT_EQ(fresh.need, Need::memory);
  EXPECT_EQ(fresh.unmapped, 3u);
  const Place taken = take(5_MiB, a);
  heap.give(taken.bytes, {{&a, 1}});
  EXPECT_EQ(heap.spare().count(), 3u);
  EXPECT_EQ(heap.find(5_MiB, a, Need::memory, PoolHeap::quick)->need, Need::nothing);
  const Place others = *heap.find(5_MiB, b, Need::memory, PoolHeap::quick);
  EXPECT_EQ(others.need, Need::waits);
  EXPECT_EQ(others.waits, (Tags{{&a, 1}}));
  EXPECT_FALSE(heap.find(5_MiB, b, Need::nothing, PoolHeap::all));
  a.passed = 1;
  EXPECT_EQ(heap.find(5_MiB, b, Need::memory, PoolHeap::quick)->need, Need::nothing);
}

TEST_F(PoolHeapTest, SmallAndLargeHaveAZoneEach) {
  const Place little = take(1_MiB, a), big = take(5_MiB, a);
  EXPECT_LT(little.bytes.begin, 50 * granule);
  EXPECT_GE(big.bytes.begin, 50 * granule);
  // What is mapped in one zone serves the other, before memory is mapped.
  EXPECT_EQ(take(1_MiB, a).bytes.begin, little.bytes.end);
  EXPECT_EQ(take(1_MiB, a).bytes.begin, big.bytes.end);
  heap.give(little.bytes, {});
  EXPECT_EQ(heap.find(1_MiB + 4096, a, Need::nothing, PoolHeap::quick), std::nullopt);
  heap.give({little.bytes.end, little.bytes.end + 1_MiB}, {});
  EXPECT_EQ(take(1_MiB + 4096, a).bytes.begin, little.bytes.begin);
}

TEST_F(PoolHeapTest, TinyBlocksStayApartWhileThereIsAnotherWay) {
  const Place tiny = take(16_KiB, a), little = take(1_MiB, a), big = take(5_MiB, a);
  EXPECT_LT(tiny.bytes.begin, 25 * granule);
  EXPECT_GE(little.bytes.begin, 25 * granule);
  EXPECT_EQ(take(16_KiB, a).bytes.begin, tiny.bytes.end);
  EXPECT_GE(take(1_MiB, a).bytes.begin, little.bytes.end);
  const Place rest = take(2_MiB - 32_KiB, a);  // is all that the tiny blocks' granule has
  EXPECT_GE(rest.bytes.begin, 50 * granule);
  EXPECT_EQ(heap.find(2_MiB - 32_KiB, a, Need::nothing, PoolHeap::quick), std::nullopt);
  EXPECT_EQ(heap.find(2_MiB - 32_KiB, a, Need::nothing, PoolHeap::all)->bytes.begin, 32_KiB);
  take(2_MiB - 32_KiB - 4096, a);
  EXPECT_EQ(heap.find(16_KiB, a, Need::nothing, PoolHeap::quick)->bytes.begin, 32_KiB);
}

TEST_F(PoolHeapTest, RecyclesWhatNobodyUsesFromTheTopDown) {
  const Place x = take(4_MiB, a), y = take(4_MiB, a), z = take(4_MiB, a);
  heap.give(x.bytes, {});
  heap.give(y.bytes, {{&a, 1}});
  heap.give(z.bytes, {});
  const auto runs = heap.recyclable({}, 3, {});
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0], (Interval{z.granules.begin, z.granules.end}));
  EXPECT_EQ(runs[1], (Interval{x.granules.end - 1, x.granules.end}));
  EXPECT_EQ(heap.recyclable({}, 9, z.granules).size(), 1u);
  a.passed = 1;
  EXPECT_EQ(heap.recyclable({}, 9, {}).size(), 1u);
}

TEST_F(PoolHeapTest, KnowsItsLargestMappedGap) {
  EXPECT_EQ(heap.largest_mapped_gap(), 0u);
  const Place x = take(5_MiB, a), y = take(7_MiB, a);
  EXPECT_EQ(heap.largest_mapped_gap(), 0u);  // 12 MiB in 6 granules
  heap.give(x.bytes, {});
  EXPECT_EQ(heap.largest_mapped_gap(), 5_MiB);
  heap.give(y.bytes, {});
  EXPECT_EQ(heap.largest_mapped_gap(), 12_MiB);
  heap.note_unmapped({x.granules.begin + 1, x.granules.begin + 2});
  EXPECT_EQ(heap.largest_mapped_gap(), 8_MiB);
}

}  // namespace
}  // namespace stowage::caching
