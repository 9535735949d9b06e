#include "samples/data/random_stream.h"

#include <gtest/gtest.h>

#include <set>

namespace stowage::samples {
namespace {

TEST(RandomBits, IsPhilox4x32With10Rounds) {
  // Known answers of Random123's kat_vectors.
  constexpr std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(random_bits(0, RandomStream{0}, 0, 0), 0xe169c58d6627e8d5U);
  EXPECT_EQ(random_bits(ones, RandomStream{0xffffffffU}, ones, 0xffffffffU), 0x41c83b0e408f276dU)
      << std::hex << random_bits(ones, RandomStream{0xffffffffU}, ones, 0xffffffffU);
}

TEST(RandomBits, EveryArgumentCounts) {
  const std::uint64_t high = std::uint64_t{1} << 32;
  const std::set<std::uint64_t> drawn = {
      random_bits(1, RandomStream::batches, 1, 1),    random_bits(2, RandomStream::batches, 1, 1),
      random_bits(high, RandomStream::batches, 1, 1), random_bits(1, RandomStream::generation, 1, 1),
      random_bits(1, RandomStream::batches, 2, 1),    random_bits(1, RandomStream::batches, high, 1),
      random_bits(1, RandomStream::batches, 1, 2)};
  EXPECT_EQ(drawn.size(), 7U);
}

}  // namespace
}  // namespace stowage::samples
