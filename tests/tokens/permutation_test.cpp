#include "src/tokens/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace stowage {
namespace {

std::vector<std::uint64_t> order_of(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint64_t> order;
  for (std::uint64_t index = 0; index < count; ++index) order.push_back(permuted(index, count, seed, epoch));
  return order;
}

TEST(Permutation, HoldsEachOnce) {
  for (const std::uint64_t count : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097}) {
    std::vector<std::uint64_t> order = order_of(count, 7, 3);
    std::sort(order.begin(), order.end());
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(order[i], i) << count;
  }
}

TEST(Permutation, IsOfSeedAndEpochAlone) {
  EXPECT_EQ(order_of(100, 1, 0), order_of(100, 1, 0));
  EXPECT_NE(order_of(100, 1, 0), order_of(100, 1, 1));
  EXPECT_NE(order_of(100, 1, 0), order_of(100, 2, 0));
  EXPECT_NE(order_of(100, 1, 0), order_of(100, std::uint64_t{1} << 32, 0));
  EXPECT_NE(order_of(100, 1, 0), order_of(100, 1, std::uint64_t{1} << 32));
}

TEST(Permutation, StaysAsItIs) {
  // A saved position means the same samples in later versions.
  EXPECT_EQ(order_of(10, 42, 0), (std::vector<std::uint64_t>{6, 5, 3, 8, 0, 1, 2, 7, 4, 9}));
}

TEST(Permutation, LeavesNoPlaceToAnyIndex) {
  // Each of 8 indices is at each of 8 places in about an eighth of 8,000 epochs.
  std::array<std::array<int, 8>, 8> counts{};
  for (std::uint64_t epoch = 0; epoch < 8000; ++epoch)
    for (std::uint64_t index = 0; index < 8; ++index) ++counts[index][permuted(index, 8, 5, epoch)];
  for (const auto& row : counts) {
    for (const int count : row) {
      EXPECT_GT(count, 850);
      EXPECT_LT(count, 1150);
    }
  }
}

TEST(Permutation, OfVeryMany) {
  constexpr std::uint64_t count = ~std::uint64_t{0};
  EXPECT_LT(permuted(0, count, 1, 1), count);
  EXPECT_NE(permuted(0, count, 1, 1), permuted(1, count, 1, 1));
}

}  // namespace
}  // namespace stowage
