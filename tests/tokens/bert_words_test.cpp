#include "src/tokens/bert_words.h"

#include <gtest/gtest.h>

#include <vector>

namespace stowage {
namespace {

using Words = std::vector<std::u32string>;

Words words_of(std::string_view text, const WordPieceOptions& options = {}) {
  Words words;
  for_each_bert_word(text, options, [&](std::u32string_view word) { words.emplace_back(word); });
  return words;
}

TEST(BertWords, CutAtSpaceAndPunctuation) {
  EXPECT_EQ(words_of(""), Words{});
  EXPECT_EQ(words_of(" Hello,\t World!! "), (Words{U"hello", U",", U"world", U"!", U"!"}));
  EXPECT_EQ(words_of("[CLS]a$b"), (Words{U"[", U"cls", U"]", U"a", U"$", U"b"}));
}

TEST(BertWords, DropControlsAndWhatIsNoText) {
  EXPECT_EQ(words_of(std::string_view("a\0b\x01"
                                      "c\xC2\xAD"
                                      "d\xEF\xBF\xBD"
                                      "e\xFF"
                                      "f\xE2\x80\x8D",
                                      17)),
            (Words{U"abcdef"}));
  EXPECT_EQ(words_of("a\x01\xFF", {.clean_text = false}), (Words{U"a\x01\uFFFD"}));
  EXPECT_EQ(words_of("a\rb\x85"), (Words{U"a", U"b"}));
}

TEST(BertWords, ChineseCharactersStandAlone) {
  EXPECT_EQ(words_of("a中文b"), (Words{U"a", U"中", U"文", U"b"}));
  EXPECT_EQ(words_of("a中文b", {.spaced_cjk = false}), (Words{U"a中文b"}));
}

TEST(BertWords, CaseAndAccents) {
  EXPECT_EQ(words_of("ÉÈ İ"), (Words{U"ee", U"i"}));
  EXPECT_EQ(words_of("ÉÈ İ", {.strip_accents = false}), (Words{U"éè", U"i\u0307"}));
  EXPECT_EQ(words_of("ÉÈ", {.lower_case = false}), (Words{U"ÉÈ"}));
  EXPECT_EQ(words_of("ÉÈ", {.lower_case = false, .strip_accents = true}), (Words{U"EE"}));
  EXPECT_EQ(words_of("\u0301 \u0301"), Words{});  // nothing but accents
}

TEST(BertNormalised, KeepsTheWordsAndIsDoneOnce) {
  EXPECT_EQ(bert_normalised("The\tÜber 中文!", {}), "the uber  中  文 !");
  EXPECT_EQ(bert_normalised("The\tÜ中", {.spaced_cjk = false, .lower_case = false}), "The Ü中");
  for (const char* const text : {"İ Ω ẞ é\u0301", "\u0130\u0307A", "豈 ﬁ Ǆ"}) {
    const std::string once = bert_normalised(text, {});
    EXPECT_EQ(words_of(once), words_of(text)) << text;
  }
}

}  // namespace
}  // namespace stowage
