#include "kernels/cpu/dropout_mask.h"

#include <algorithm>

#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

std::vector<float> mask(const DropoutMask& of, std::uint64_t first, std::int64_t count) {
  const std::vector<float> ones(static_cast<std::size_t>(count), 1.0F);
  std::vector<float> result = unwritten<float>(count);
  of.apply(first, count, ones.data(), result.data());
  return result;
}

TEST(DropoutMask, FollowsThePublishedPhilox) {
  // Random123's known answer for Philox4x32-10, counter and key all zero.
  const auto words = random_words({0, 0, 0}, 0);
  EXPECT_EQ(words.v[0], 0x6627e8d5U);
  EXPECT_EQ(words.v[1], 0xe169c58dU);
  EXPECT_EQ(words.v[2], 0xbc57ac4cU);
  EXPECT_EQ(words.v[3], 0x9b00dbd8U);
}

TEST(DropoutMask, ElementDependsOnItsNumberAlone) {
  const DropoutMask of({1, 2, 3}, 0.3);
  const std::vector<float> all = mask(of, 0, 3000);
  for (std::int64_t first : {0, 1, 2, 3, 4, 255, 256, 257, 1023}) {
    for (std::int64_t count : {1, 3, 4, 5, 255, 256, 260, 1000}) {
      const std::vector<float> part(all.begin() + first, all.begin() + first + count);
      EXPECT_EQ(mask(of, static_cast<std::uint64_t>(first), count), part) << first << " " << count;
    }
  }
}

TEST(DropoutMask, StartsAtTheStreamsFirstElement) {
  const std::vector<float> all = mask(DropoutMask({1, 2, 3}, 0.3), 0, 400);
  for (std::uint64_t start : {1, 2, 3, 4, 7, 255, 258}) {
    const std::vector<float> part(all.begin() + static_cast<std::ptrdiff_t>(start) + 5, all.end());
    EXPECT_EQ(mask(DropoutMask({1, 2, 3, start}, 0.3), 5, static_cast<std::int64_t>(part.size())), part)
        << start;
  }
}

TEST(DropoutMask, MatchesWordsDrawnOneByOne) {
  const RandomStream stream{77, 88, 99};
  const std::uint64_t first = (1ULL << 34U) - 40;  // the counter's low word runs over
  const std::vector<float> found = mask(DropoutMask(stream, 0.25), first, 100);
  for (std::uint64_t i = 0; i < found.size(); ++i) {
    const std::uint32_t word = random_words(stream, (first + i) / 4).v[(first + i) % 4];
    EXPECT_EQ(found[i] == 0, word < 0x40000000U) << i;
  }
}

TEST(DropoutMask, Extremes) {
  EXPECT_EQ(mask(DropoutMask({1, 2, 3}, 0), 0, 1000), std::vector<float>(1000, 1.0F));
  EXPECT_EQ(mask(DropoutMask({1, 2, 3}, 1), 0, 1000), std::vector<float>(1000, 0.0F));
}

}  // namespace
}  // namespace stowage::cpu
