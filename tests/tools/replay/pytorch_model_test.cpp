// Sizes and addresses worked by hand from the rules that PyTorch documents at the top of its allocator.
#include "tools/replay/pytorch_model.h"

#include <gtest/gtest.h>

#include <random>

#include "stowage/error.h"
#include "tests/support/checked_model.h"
#include "tests/support/random_trace.h"
#include "tools/replay/replay.h"

namespace stowage {
namespace {

constexpr Bytes unit = 512;

class PytorchModelTest : public ::testing::Test {
 protected:
  std::uint64_t make(Bytes bytes, std::uint32_t stream = 0) {
    return model_.allocate(next_++, bytes, stream);
  }
  void drop(AllocationId id) { model_.free(id); }
  Bytes reserved() const { return model_.reserved_bytes(); }

  PytorchModel model_{PytorchOptions{}};
  AllocationId next_ = 0;
};

TEST_F(PytorchModelTest, RoundsTo512Bytes) {
  const std::uint64_t first = make(1);
  EXPECT_EQ(make(513), first + unit);
  EXPECT_EQ(make(512), first + 3 * unit);
  EXPECT_EQ(make(1), first + 4 * unit);
  EXPECT_EQ(reserved(), 2_MiB);
}

TEST_F(PytorchModelTest, PacksUpToOneMebibyteIntoSegmentsOfTwo) {
  const std::uint64_t first = make(1_MiB);
  EXPECT_EQ(make(1_MiB), first + 1_MiB);
  EXPECT_EQ(reserved(), 2_MiB);
  make(1);
  EXPECT_EQ(reserved(), 4_MiB);
}

TEST_F(PytorchModelTest, TakesSegmentsOf20MebibytesBelow10AndWholeTwosAbove) {
  const std::uint64_t first = make(1_MiB + 1);
  EXPECT_EQ(reserved(), 20_MiB);
  EXPECT_EQ(make(10_MiB - unit), first + 1_MiB + unit);
  EXPECT_EQ(reserved(), 20_MiB);
  make(10_MiB);
  EXPECT_EQ(reserved(), 30_MiB);
  make(10_MiB + 1);
  EXPECT_EQ(reserved(), 42_MiB);
}

// What is left of a mebibyte or less serves no request of this pool, so that it goes along changes nothing.
TEST_F(PytorchModelTest, SplitsLargeBlocksWhereMoreThanAMebibyteIsLeft) {
  const std::uint64_t first = make(2_MiB);
  drop(0);
  EXPECT_EQ(make(19_MiB - unit), first);
  EXPECT_EQ(make(1_MiB + unit), first + 19_MiB - unit);
  EXPECT_EQ(reserved(), 20_MiB);
}

TEST_F(PytorchModelTest, SplitsSmallBlocksDownToOneUnit) {
  const std::uint64_t first = make(1_MiB);
  EXPECT_EQ(make(1_MiB - unit), first + 1_MiB);
  EXPECT_EQ(make(1), first + 2_MiB - unit);
  EXPECT_EQ(reserved(), 2_MiB);
}

TEST_F(PytorchModelTest, TakesTheSmallestBlockThatFitsAndOfThoseTheLowest) {
  make(30_MiB);
  const std::uint64_t second = make(12_MiB);
  const std::uint64_t third = make(12_MiB);
  drop(0);
  drop(2);
  drop(1);
  EXPECT_EQ(make(11_MiB), second);
  EXPECT_EQ(make(11_MiB), third);
  EXPECT_EQ(reserved(), 54_MiB);
}

TEST_F(PytorchModelTest, MergesFreeNeighbours) {
  const std::uint64_t first = make(4_MiB);
  make(4_MiB);
  make(4_MiB);
  drop(0);
  drop(2);
  drop(1);
  EXPECT_EQ(make(20_MiB), first);
  EXPECT_EQ(reserved(), 20_MiB);
}

TEST_F(PytorchModelTest, KeepsStreamsApart) {
  const std::uint64_t first = make(4_MiB, 0);
  drop(0);
  EXPECT_NE(make(4_MiB, 1), first);
  EXPECT_EQ(reserved(), 40_MiB);
  EXPECT_EQ(make(4_MiB, 0), first);
}

TEST_F(PytorchModelTest, KeepsPoolsApart) {
  make(20_MiB);
  drop(0);
  make(1_MiB);
  EXPECT_EQ(reserved(), 22_MiB);
}

TEST_F(PytorchModelTest, ReleasesOnlyWholeSegments) {
  make(4_MiB);
  make(4_MiB);
  make(30_MiB);
  drop(0);
  drop(2);
  model_.release_cached();
  EXPECT_EQ(reserved(), 20_MiB);
  drop(1);
  model_.release_cached();
  EXPECT_EQ(reserved(), 0U);
}

TEST(PytorchModel, ReleasesWhatIsCachedBeforeItFails) {
  PytorchModel model({false, 40_MiB});
  model.allocate(0, 20_MiB, 0);
  model.free(0);
  model.allocate(1, 30_MiB, 0);
  EXPECT_EQ(model.reserved_bytes(), 30_MiB);
  EXPECT_THROW(model.allocate(2, 12_MiB, 0), OutOfMemory);
  EXPECT_EQ(model.reserved_bytes(), 30_MiB);
  model.allocate(2, 10_MiB, 0);
  EXPECT_EQ(model.reserved_bytes(), 40_MiB);
}

TEST(PytorchModel, FailsForMoreThanAnyDeviceHas) {
  for (const bool expandable : {false, true}) {
    PytorchModel model({expandable});
    EXPECT_THROW(model.allocate(0, ~Bytes{0}, 0), OutOfMemory);
    EXPECT_EQ(model.reserved_bytes(), 0U);
  }
}

// Whatever comes, nothing overlaps and all that is live is reserved.
TEST(PytorchModel, GivesNoByteTwice) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100; ++round) {
    const bool expandable = round % 2 == 0;
    const Bytes limit = round % 4 < 2 ? 60_MiB : ~Bytes{0};
    PytorchModel model({expandable, limit});
    test::CheckedModel checked(model);
    EXPECT_NO_THROW(replay(test::random_trace(random, 400), checked));
    EXPECT_LE(model.reserved_bytes(), limit);
  }
}

}  // namespace
}  // namespace stowage
