#include "src/tokens/word_piece_tokenizer.h"

#include <gtest/gtest.h>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr const char* vocab =
    "[PAD]\n[UNK]\nun\n##aff\n##able\n##a\n[CLS]\n[SEP]\nu\n,\n中\r\n##é \n[MASK]\n";

TEST(WordPieceTokenizer, TakesTheLongestTokens) {
  const auto tokenizer = word_piece_tokenizer(vocab);
  EXPECT_EQ(tokenizer->encode("Unaffable, una"), (Ids{2, 3, 4, 9, 2, 5}));
  EXPECT_EQ(tokenizer->encode("unaffx un"), (Ids{1, 2}));  // one [UNK] for a whole word
  EXPECT_EQ(tokenizer->encode("中u"), (Ids{10, 8}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  EXPECT_EQ(tokenizer->vocabulary_size(), 13);
}

TEST(WordPieceTokenizer, AByteOrderMarkIsNoPartOfTheFirstToken) {
  EXPECT_EQ(word_piece_tokenizer(std::string("\xef\xbb\xbf") + vocab)->special(SpecialToken::padding), 0);
}

TEST(WordPieceTokenizer, WordsOfMoreThanAHundredCharactersAreUnknown) {
  const auto tokenizer = word_piece_tokenizer(vocab, {.strip_accents = false});
  const auto word = [](int characters) {
    std::string text = "u";
    for (int i = 1; i < characters; ++i) text += "é";
    return text;
  };
  EXPECT_EQ(tokenizer->encode(word(100)).size(), 100U);
  EXPECT_EQ(tokenizer->encode(word(101)), Ids{1});
}

TEST(WordPieceTokenizer, SpecialTokens) {
  const auto tokenizer = word_piece_tokenizer(vocab);
  EXPECT_EQ(tokenizer->special(SpecialToken::classification), 6);
  EXPECT_EQ(tokenizer->special(SpecialToken::separator), 7);
  EXPECT_EQ(tokenizer->special(SpecialToken::padding), 0);
  EXPECT_EQ(tokenizer->special(SpecialToken::mask), 12);
  EXPECT_EQ(tokenizer->special(SpecialToken::unknown), 1);
  EXPECT_FALSE(tokenizer->special(SpecialToken::end_of_text));
  EXPECT_EQ(tokenizer->encode("[CLS]un[SEP]"), (Ids{6, 2, 7}));
  EXPECT_EQ(tokenizer->encode("[cls]un"), (Ids{1, 1, 1, 2}));
  EXPECT_EQ(tokenizer->encode("[CLS]", SpecialText::ordinary), (Ids{1, 1, 1}));
}

TEST(WordPieceTokenizer, DecodesToWords) {
  const auto tokenizer = word_piece_tokenizer(vocab);
  EXPECT_EQ(tokenizer->decode(Ids{6, 2, 3, 4, 9, 8, 7}), "[CLS] unaffable , u [SEP]");
  EXPECT_EQ(tokenizer->decode(Ids{3, 3}), "##affaff");
  test::expect_refused([&] { tokenizer->decode(Ids{13}); }, "no token has the id 13");
}

TEST(WordPieceTokenizer, OfLinesThatComeTwiceTheLaterCounts) {
  EXPECT_EQ(word_piece_tokenizer("[UNK]\na\na\n")->encode("a"), Ids{2});
}

TEST(WordPieceTokenizer, EmptyLastLinesAreNoTokens) {
  for (const char* end : {"", "\n", "\r\n\r\n", "\n\n\n"}) {
    const auto tokenizer = word_piece_tokenizer(std::string("[UNK]\r\na\r\n\r\nb") + end);
    EXPECT_EQ(tokenizer->vocabulary_size(), 4) << "one between others keeps its place";
    EXPECT_EQ(tokenizer->encode("b"), Ids{3});
  }
}

TEST(WordPieceTokenizer, RefusesAVocabularyWithoutUnknown) {
  test::expect_refused([] { word_piece_tokenizer("a\nb\n"); }, "vocab.txt: no line is [UNK]");
  test::expect_refused([] { word_piece_tokenizer(""); }, "vocab.txt: no line is [UNK]");
}

}  // namespace
}  // namespace stowage
