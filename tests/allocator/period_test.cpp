#include "allocator/period.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace stowage {
namespace {

using Tokens = std::vector<std::uint64_t>;

std::optional<SequencePeriod> find(const Tokens& tokens) {
  return find_period(tokens, [](std::size_t) { return true; });
}

TEST(Period, OfWhatRepeats) {
  EXPECT_EQ(find({1, 2, 3, 1, 2, 3}), (SequencePeriod{3, 6}));
  EXPECT_EQ(find({1, 2, 3, 1, 2, 3, 1}), (SequencePeriod{3, 7}));
  EXPECT_EQ(find({4, 4}), (SequencePeriod{1, 2}));
}

TEST(Period, PassesOverADifferentBeginning) {
  EXPECT_EQ(find({9, 8, 1, 2, 3, 1, 2, 3}), (SequencePeriod{3, 6}));
  EXPECT_EQ(find({1, 2, 9, 1, 2, 3, 1, 2, 3}), (SequencePeriod{3, 6}));
}

TEST(Period, OfTheLongestSuffixBeforeThatOfAShorterOne) {
  EXPECT_EQ(find({1, 5, 5, 1, 5, 5}), (SequencePeriod{3, 6}));
  EXPECT_EQ(find({7, 1, 5, 5}), (SequencePeriod{1, 2}));
}

TEST(Period, IsNotThereBelowTwoRepetitions) {
  EXPECT_EQ(find({}), std::nullopt);
  EXPECT_EQ(find({1}), std::nullopt);
  EXPECT_EQ(find({1, 2, 3, 1, 2}), std::nullopt);
}

TEST(Period, MayBeRefused) {
  const Tokens tokens{1, 5, 5, 1, 5, 5};
  EXPECT_EQ(find_period(tokens, [](std::size_t length) { return length != 3; }), (SequencePeriod{1, 2}));
  EXPECT_EQ(find_period(tokens, [](std::size_t) { return false; }), std::nullopt);
}

// The same by trying every suffix and length.
TEST(Period, AgreesWithTrial) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    Tokens tokens(random() % 16);
    for (std::uint64_t& token : tokens) token = random() % 3;
    std::optional<SequencePeriod> expected;
    for (std::size_t matched = tokens.size(); matched >= 2 && !expected; --matched) {
      for (std::size_t length = 1; 2 * length <= matched && !expected; ++length) {
        bool repeats = true;
        for (std::size_t i = tokens.size() - matched + length; i < tokens.size(); ++i)
          repeats = repeats && tokens[i] == tokens[i - length];
        if (repeats) expected = SequencePeriod{length, matched};
      }
    }
    EXPECT_EQ(find(tokens), expected) << round;
  }
}

}  // namespace
}  // namespace stowage
