#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "src/tokens/gpt2_pieces.h"
#include "tests/support/expect_refused.h"
#include "tests/tokens/fixtures.h"

namespace stowage {
namespace {

using Tokens = std::vector<std::int32_t>;
using Pair = std::pair<std::int32_t, std::int32_t>;

// The same by counting anew before each merge.
BytePairVocabulary train_slowly(std::string_view text, std::size_t size) {
  BytePairVocabulary vocabulary;
  std::map<std::string, std::int32_t> ids;
  for (const std::uint8_t byte : bytes_by_letter()) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
    ids[vocabulary.tokens.back()] = static_cast<std::int32_t>(vocabulary.tokens.size()) - 1;
  }
  std::vector<Tokens> pieces;
  for_each_piece(text, [&](std::string_view piece) {
    pieces.emplace_back();
    for (const char byte : piece) pieces.back().push_back(ids[std::string(1, byte)]);
  });
  while (vocabulary.tokens.size() + 1 < size) {
    std::map<Pair, int> counts;
    for (const Tokens& piece : pieces)
      for (std::size_t i = 1; i < piece.size(); ++i) ++counts[{piece[i - 1], piece[i]}];
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end() || best->second < 2) break;
    const auto [first, second] = best->first;
    const std::string made = vocabulary.tokens[static_cast<std::size_t>(first)] +
                             vocabulary.tokens[static_cast<std::size_t>(second)];
    if (!ids.contains(made)) {
      ids[made] = static_cast<std::int32_t>(vocabulary.tokens.size());
      vocabulary.tokens.push_back(made);
    }
    vocabulary.merges.emplace_back(first, second);
    for (Tokens& piece : pieces) {
      Tokens merged;
      for (std::size_t i = 0; i < piece.size(); ++i) {
        const bool here = i + 1 < piece.size() && piece[i] == first && piece[i + 1] == second;
        merged.push_back(here ? ids[made] : piece[i]);
        i += here ? 1 : 0;
      }
      piece = merged;
    }
  }
  vocabulary.tokens.emplace_back("<|endoftext|>");
  return vocabulary;
}

TEST(BytePairTrainer, TheMostFrequentPairFirst) {
  const BytePairVocabulary vocabulary = train_byte_pairs("aab aab ab", 259);
  ASSERT_EQ(vocabulary.tokens.size(), 259U);
  EXPECT_EQ(vocabulary.tokens[256], "ab");  // three times
  EXPECT_EQ(vocabulary.tokens[257],
            "aab");  // twice, as " a", whose second id is smaller but whose first is larger
  EXPECT_EQ(vocabulary.tokens[258], "<|endoftext|>");
}

TEST(BytePairTrainer, IsWhatCountingAnewGives) {
  const std::vector<std::string> texts{"aaaa aaaaaaa aaa aa aaaaa", "abababab babab abba baab ab",
                                       "the cat, the hat; then they're in there's the inn, isn't it?",
                                       std::string("\xFF\xFE\xFF\xFE\0\0\0", 7)};
  for (const std::string& text : texts) {
    const BytePairVocabulary expected = train_slowly(text, 300);
    const BytePairVocabulary trained = train_byte_pairs(text, 300);
    EXPECT_EQ(trained.tokens, expected.tokens) << text;
    EXPECT_EQ(trained.merges, expected.merges) << text;
  }
  // Random words of few letters, so that pairs tie and tokens come to be in several ways.
  std::uint32_t state = 1;
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    state = state * 1664525U + 1013904223U;
    text += "aabc  "[(state >> 20U) % 6];
  }
  EXPECT_EQ(train_byte_pairs(text, 400).merges, train_slowly(text, 400).merges);
}

TEST(BytePairTrainer, StopsWhereNoPairComesTwice) {
  const BytePairVocabulary vocabulary = train_byte_pairs("abc", 1000);
  EXPECT_EQ(vocabulary.tokens.size(), 257U);
  EXPECT_TRUE(vocabulary.merges.empty());
}

TEST(BytePairTrainer, DocumentsEndAtTheEndOfText) {
  EXPECT_EQ(train_byte_pairs("ab<|endoftext|>ab<|endoftext|>", 1000).tokens[256], "ab");
  EXPECT_EQ(train_byte_pairs("ab<|endoftext|>ab<|endoftext|>", 1000).merges.size(), 1U);
}

TEST(BytePairTrainer, RefusesSizesThatCannotBe) {
  for (const std::int32_t size : {-1, 0, 256, (1 << 24) + 1})
    test::expect_refused([&] { train_byte_pairs("a", size); }, "give a size from 257 to 16777216");
}

}  // namespace
}  // namespace stowage
