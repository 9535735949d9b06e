// Addresses worked by hand from PyTorch's Note [Expandable Segments].
#include <gtest/gtest.h>

#include "stowage/error.h"
#include "tools/replay/pytorch_model.h"

namespace stowage {
namespace {

class ExpandableSegmentsTest : public ::testing::Test {
 protected:
  std::uint64_t make(Bytes bytes, std::uint32_t stream = 0) {
    return model_.allocate(next_++, bytes, stream);
  }
  void drop(AllocationId id) { model_.free(id); }
  Bytes reserved() const { return model_.reserved_bytes(); }

  PytorchModel model_{PytorchOptions{.expandable = true}};
  AllocationId next_ = 0;
};

TEST_F(ExpandableSegmentsTest, MapPagesOfTwoMebibytesForSmallAnd20ForLarge) {
  make(1);
  EXPECT_EQ(reserved(), 2_MiB);
  make(2_MiB);
  EXPECT_EQ(reserved(), 22_MiB);
  make(1_MiB);
  EXPECT_EQ(reserved(), 22_MiB);
  make(1_MiB);  // 512 bytes are missing
  EXPECT_EQ(reserved(), 24_MiB);
}

TEST_F(ExpandableSegmentsTest, GrowAtTheirEnd) {
  const std::uint64_t first = make(2_MiB);
  EXPECT_EQ(make(30_MiB), first + 2_MiB);  // 18 of the first page, 12 of the next
  EXPECT_EQ(reserved(), 40_MiB);
  EXPECT_EQ(make(8_MiB), first + 32_MiB);
  EXPECT_EQ(reserved(), 40_MiB);
  EXPECT_EQ(make(41_MiB), first + 40_MiB);
  EXPECT_EQ(reserved(), 100_MiB);
}

// The note's example: batch N, then N + 1. Segments of the size of requests leave slices that nothing fits.
TEST_F(ExpandableSegmentsTest, KeepNoSlivers) {
  PytorchModel segments{PytorchOptions{}};
  AllocationId id = 0;
  for (const Bytes size : {Bytes{20_MiB}, Bytes{22_MiB}}) {
    for (int i = 0; i < 10; ++i) {
      make(size);
      segments.allocate(id++, size, 0);
    }
    for (AllocationId i = id - 10; i < id; ++i) {
      drop(i);
      segments.free(i);
    }
  }
  EXPECT_EQ(reserved(), 220_MiB);
  EXPECT_EQ(segments.reserved_bytes(), 420_MiB);
}

TEST_F(ExpandableSegmentsTest, SplitLargeBlocksDownToOneUnit) {
  const std::uint64_t first = make(2_MiB);
  EXPECT_EQ(make(17_MiB), first + 2_MiB);
  EXPECT_EQ(make(1_MiB + 512), first + 19_MiB);
  // 1 MiB was free: 512 bytes of the next page
  EXPECT_EQ(reserved(), 40_MiB);
}

TEST_F(ExpandableSegmentsTest, UnmapWholeFreePagesAndFillTheHolesFirst) {
  const std::uint64_t first = make(20_MiB);
  make(30_MiB);
  make(10_MiB);
  drop(1);
  model_.release_cached();
  EXPECT_EQ(reserved(), 40_MiB);            // of [20, 50) the page [20, 40)
  EXPECT_EQ(make(9_MiB), first + 40_MiB);   // still mapped
  EXPECT_EQ(make(21_MiB), first + 60_MiB);  // the hole has 20, and one page behind it is used
  EXPECT_EQ(reserved(), 80_MiB);
  EXPECT_EQ(make(20_MiB), first + 20_MiB);
  EXPECT_EQ(reserved(), 100_MiB);
}

TEST_F(ExpandableSegmentsTest, MapAHoleTogetherWithWhatIsFreeAroundIt) {
  const std::uint64_t first = make(30_MiB);
  make(30_MiB);
  make(20_MiB);
  drop(1);
  model_.release_cached();  // of [30, 60) the page [40, 60); [30, 40) is free
  EXPECT_EQ(reserved(), 60_MiB);
  EXPECT_EQ(make(25_MiB), first + 30_MiB);
  EXPECT_EQ(reserved(), 80_MiB);
}

TEST_F(ExpandableSegmentsTest, PreferBlocksThatCannotGrow) {
  const std::uint64_t first = make(5_MiB);
  make(12_MiB);
  drop(0);
  // free: [0, 5), and [17, 20) which can grow
  EXPECT_EQ(make(2_MiB), first);
  EXPECT_EQ(make(2_MiB), first + 2_MiB);
  EXPECT_EQ(make(2_MiB), first + 17_MiB);
  EXPECT_EQ(reserved(), 20_MiB);
}

TEST_F(ExpandableSegmentsTest, AreOnePerStreamAndPool) {
  make(2_MiB, 0);
  make(2_MiB, 1);
  make(1, 1);
  EXPECT_EQ(reserved(), 42_MiB);
  for (AllocationId id = 0; id < 3; ++id) drop(id);
  EXPECT_EQ(reserved(), 42_MiB);
  model_.release_cached();
  EXPECT_EQ(reserved(), 0U);
}

TEST(ExpandableSegments, UnmapWhatIsCachedBeforeTheyFail) {
  PytorchModel model({.expandable = true, .limit = 60_MiB});
  model.allocate(0, 40_MiB, 0);
  model.free(0);
  model.allocate(1, 40_MiB, 1);  // 60 do not hold both
  EXPECT_EQ(model.reserved_bytes(), 40_MiB);
  EXPECT_THROW(model.allocate(2, 21_MiB, 1), OutOfMemory);
  model.allocate(2, 20_MiB, 1);
  EXPECT_EQ(model.reserved_bytes(), 60_MiB);
}

}  // namespace
}  // namespace stowage
