#include "offload/recompute/bits_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace stowage {
namespace {

std::uint64_t hash_of(std::span<const std::byte> value) {
  BitsHash hash;
  hash.add(value);
  return hash.value();
}

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * i * 7 + 3 * i);
  return bytes;
}

TEST(BitsHash, EveryBitCounts) {
  for (std::size_t count : {1U, 7U, 8U, 9U, 64U, 250U}) {
    std::vector<std::byte> bytes = some_bytes(count);
    std::set<std::uint64_t> seen{hash_of(bytes)};
    for (std::size_t bit = 0; bit < 8 * count; ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      seen.insert(hash_of(bytes));
      bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    }
    EXPECT_EQ(seen.size(), 8 * count + 1);
  }
}

TEST(BitsHash, SoDoOrderAndLength) {
  const std::vector<std::byte> bytes = some_bytes(64);
  std::vector<std::byte> other = bytes;
  std::swap_ranges(other.begin(), other.begin() + 8, other.begin() + 24);
  EXPECT_NE(hash_of(bytes), hash_of(other));
  const std::vector<std::byte> zeros(40);
  std::set<std::uint64_t> seen;
  for (std::size_t count = 0; count <= zeros.size(); ++count) seen.insert(hash_of({zeros.data(), count}));
  EXPECT_EQ(seen.size(), zeros.size() + 1);
}

TEST(BitsHash, AValueMayComeInParts) {
  const std::vector<std::byte> bytes = some_bytes(203);
  for (std::size_t part : {8U, 16U, 64U, 200U}) {
    BitsHash hash;
    for (std::size_t done = 0; done < bytes.size(); done += part)
      hash.add({bytes.data() + done, std::min(part, bytes.size() - done)});
    EXPECT_EQ(hash.value(), hash_of(bytes));
  }
}

}  // namespace
}  // namespace stowage
