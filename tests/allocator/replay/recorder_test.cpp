#include "allocator/replay/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace stowage::caching::replay {
namespace {

using Tokens = std::vector<std::uint64_t>;

// By trying every suffix, each with its shortest period; in some rounds one length is refused.
TEST(Period, AgreesWithTrial) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    Tokens tokens(random() % 16);
    for (std::uint64_t& token : tokens) token = random() % 3;
    const std::size_t refused = random() % 6;
    const auto accept = [&](std::size_t length) { return length != refused; };
    std::optional<SequencePeriod> expected;
    const auto repeats = [&](std::size_t matched, std::size_t length) {
      const auto begin = tokens.end() - static_cast<std::ptrdiff_t>(matched);
      return std::equal(begin + static_cast<std::ptrdiff_t>(length), tokens.end(), begin);
    };
    for (std::size_t matched = tokens.size(); matched >= 2 && !expected; --matched) {
      std::size_t length = 1;
      while (!repeats(matched, length)) ++length;
      if (2 * length <= matched && accept(length)) expected = SequencePeriod{length, matched};
    }
    EXPECT_EQ(find_period(tokens, accept), expected) << round;
  }
}

}  // namespace
}  // namespace stowage::caching::replay
