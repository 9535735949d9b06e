#include "kernels/cuda/attention_slices.h"

#include <gtest/gtest.h>

#include <vector>

namespace stowage::cuda {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

AttentionShape shape_of(std::int64_t samples, std::int64_t heads, std::int64_t key_heads = 0) {
  AttentionShape shape;
  shape.key_heads = key_heads;
  shape.samples = samples;
  shape.heads = heads;
  shape.sequence = 8;
  shape.width = heads * 8;
  return shape;
}

// With one MiB a head.
AttentionSlice slice(std::int64_t samples, std::int64_t heads, std::int64_t mebibytes) {
  return slice_that_fits(shape_of(samples, heads), samples * heads * mebibyte, mebibytes * mebibyte);
}

TEST(AttentionSlices, TakesWholeSamplesWhereOneFits) {
  const AttentionSlice found = slice(64, 12, 100);  // 8 samples take 96
  EXPECT_EQ(found.samples, 8);
  EXPECT_EQ(found.heads, 12);
}

TEST(AttentionSlices, TakesHeadsOfOneSampleWhereItDoesNotFit) {
  const AttentionSlice found = slice(4, 12, 5);
  EXPECT_EQ(found.samples, 1);
  EXPECT_EQ(found.heads, 4);
}

TEST(AttentionSlices, TakesNothingWhereNoHeadFits) {
  EXPECT_EQ(slice(4, 12, 1).heads, 0);  // 64 KiB are kept back
  EXPECT_EQ(slice(4, 12, 0).heads, 0);
}

// With one MiB a query head, and groups of four.
TEST(AttentionSlices, TakesWholeGroups) {
  const auto slice_of_groups = [](std::int64_t mebibytes) {
    return slice_that_fits(shape_of(2, 12, 3), 24 * mebibyte, mebibytes * mebibyte);
  };
  EXPECT_EQ(slice_of_groups(4).heads, 0);  // 64 KiB are kept back
  EXPECT_EQ(slice_of_groups(8).heads, 4);
  EXPECT_EQ(slice_of_groups(12).heads, 8);
  EXPECT_EQ(slice_of_groups(24).samples, 1);
  EXPECT_EQ(slice_of_groups(24).heads, 12);
  EXPECT_EQ(slice_of_groups(25).samples, 2);
}

TEST(AttentionSlices, FitAndCoverEverything) {
  for (std::int64_t samples = 1; samples <= 9; ++samples) {
    for (std::int64_t heads = 1; heads <= 7; ++heads) {
      for (std::int64_t limit = 2; limit <= samples * heads + 1; ++limit) {
        const AttentionSlice found = slice(samples, heads, limit);
        ASSERT_GT(found.heads, 0);
        EXPECT_LE(found.samples * found.heads, limit - 1);
        std::vector<int> written(static_cast<std::size_t>(samples * heads));
        const SliceStarts first_samples(samples, found.samples);
        const SliceStarts first_heads(heads, found.heads);
        for (std::int64_t i = 0; i < first_samples.count(); ++i) {
          for (std::int64_t k = 0; k < first_heads.count(); ++k) {
            for (std::int64_t s = 0; s < found.samples; ++s) {
              for (std::int64_t h = 0; h < found.heads; ++h) {
                ASSERT_LT(first_samples[i] + s, samples);
                ASSERT_LT(first_heads[k] + h, heads);
                ++written[static_cast<std::size_t>((first_samples[i] + s) * heads + first_heads[k] + h)];
              }
            }
          }
        }
        for (const int times : written) EXPECT_GE(times, 1);
      }
    }
  }
}

}  // namespace
}  // namespace stowage::cuda
