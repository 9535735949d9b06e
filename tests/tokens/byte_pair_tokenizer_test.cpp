#include "src/tokens/byte_pair_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/expect_refused.h"
#include "tests/tokens/fixtures.h"

namespace stowage {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(BytePairTokenizer, MergesWithinPieces) {
  BytePairVocabulary vocabulary = train_byte_pairs("", 257);
  const auto byte = [&](char c) {
    for (std::size_t id = 0;; ++id) {
      if (vocabulary.tokens[id] == std::string(1, c)) return static_cast<std::int32_t>(id);
    }
  };
  vocabulary.tokens.insert(vocabulary.tokens.end() - 1, {"th", "the", " th"});
  vocabulary.merges = {{byte('t'), byte('h')}, {256, byte('e')}, {byte(' '), 256}};
  const auto tokenizer = byte_pair_tokenizer(vocabulary);
  EXPECT_EQ(tokenizer->vocabulary_size(), 260);
  EXPECT_EQ(tokenizer->encode("the the"), (Ids{257, byte(' '), 257}));
  EXPECT_EQ(tokenizer->encode(" tht h"), (Ids{258, byte('t'), byte(' '), byte('h')}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
}

TEST(BytePairTokenizer, SpecialTokensWithinText) {
  const auto tokenizer = byte_pair_tokenizer(test::small_vocabulary());
  EXPECT_EQ(tokenizer->special(SpecialToken::end_of_text), 264);
  EXPECT_FALSE(tokenizer->special(SpecialToken::mask));
  const Ids ids = tokenizer->encode("the<|endoftext|> the<|endoftext|><|endoftext|>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 264), 3);
  EXPECT_EQ(tokenizer->decode(ids), "the<|endoftext|> the<|endoftext|><|endoftext|>");
  const Ids ordinary = tokenizer->encode("the<|endoftext|>", SpecialText::ordinary);
  EXPECT_EQ(std::count(ordinary.begin(), ordinary.end(), 264), 0);
  EXPECT_EQ(tokenizer->decode(ordinary), "the<|endoftext|>");
  // What stands on either side is a text of its own: white space at its end is not left to what follows.
  EXPECT_EQ(tokenizer->encode("a  <|endoftext|>").size(), tokenizer->encode("a  ").size() + 1);
}

TEST(BytePairTokenizer, DecodesToTheSameBytes) {
  const auto tokenizer = byte_pair_tokenizer(test::small_vocabulary());
  std::mt19937 random(1);
  const std::string alphabet = "the cat 's\n\xC3\xA9\xFF\xE2\x82" + std::string(1, '\0');
  for (int run = 0; run < 2000; ++run) {
    std::string text;
    for (std::size_t left = random() % 40; left > 0; --left) {
      text += random() % 2 == 0 ? alphabet[random() % alphabet.size()] : static_cast<char>(random());
    }
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(BytePairTokenizer, RefusesIdsWithoutToken) {
  const auto tokenizer = byte_pair_tokenizer(test::small_vocabulary());
  test::expect_refused([&] { tokenizer->decode(Ids{265}); }, "no token has the id 265");
}

}  // namespace
}  // namespace stowage
