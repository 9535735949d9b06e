#include "src/tokens/text_parts.h"

#include <gtest/gtest.h>

#include "tests/tokens/fixtures.h"

namespace stowage {
namespace {

TEST(TextParts, EndBehindALineEndBetweenCharacters) {
  EXPECT_EQ(end_of_part("ab\ncd", 0, 1), 3U);
  EXPECT_EQ(end_of_part("ab\ncd", 0, 3), 3U);
  EXPECT_EQ(end_of_part("ab\ncd", 0, 4), 5U);
  EXPECT_EQ(end_of_part("ab\n cd\ne", 0, 1), 7U);              // white space behind
  EXPECT_EQ(end_of_part("ab\n\ncd \ne\u3000\nf", 0, 1), 14U);  // and before
  EXPECT_EQ(end_of_part("。\nc", 0, 1), 4U);
  EXPECT_EQ(end_of_part("ab\n", 0, 1), 3U);
  EXPECT_EQ(end_of_part("\nab", 0, 1), 3U);
  EXPECT_EQ(end_of_part("ab\ncd\nef", 3, 1), 6U);
  EXPECT_EQ(end_of_part("abc", 0, 100), 3U);
  EXPECT_EQ(end_of_part("abc", 3, 0), 3U);
}

TEST(TextParts, HaveTheIdsOfTheWhole) {
  const auto pairs = byte_pair_tokenizer(test::small_vocabulary());
  const auto words = load_tokenizer(test::fixture("bert"));
  std::uint32_t state = 1;
  for (int run = 0; run < 500; ++run) {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      state = state * 1664525U + 1013904223U;
      const char* const pieces[] = {"\n",     "\n", "the",           " ",     "cat",  "'s", "\r\n",
                                    "\u3000", "中", "<|endoftext|>", "[SEP]", "\xFF", "é"};
      text += pieces[(state >> 16U) % std::size(pieces)];
    }
    for (const Tokenizer* tokenizer : {pairs.get(), words.get()}) {
      std::vector<std::int32_t> ids;
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = end_of_part(text, begin, 1 + (state >> 8U) % 20);
        const auto part = tokenizer->encode(text.substr(begin, end - begin));
        ids.insert(ids.end(), part.begin(), part.end());
        begin = end;
      }
      ASSERT_EQ(ids, tokenizer->encode(text)) << text;
    }
  }
}

}  // namespace
}  // namespace stowage
