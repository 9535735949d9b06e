#include "samples/data/documents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace stowage::samples {
namespace {

const auto as_bytes = byte_tokenizer();

std::vector<std::string> sentences_of(const Documents& documents) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < documents.sentences(); ++i)
    texts.push_back(as_bytes->decode(documents.sentence(i)));
  return texts;
}

TEST(Documents, EndSentencesAtLinesAndStops) {
  const Documents documents("One. Two!  Three?\nfour 5.6 \"Seven.\" Eight... nine (ten.) 11\n", *as_bytes);
  EXPECT_EQ(sentences_of(documents),
            (std::vector<std::string>{"One.", "Two!", "Three?", "four 5.6 \"Seven.\"", "Eight...",
                                      "nine (ten.)", "11"}));
  EXPECT_EQ(documents.documents(), 1u);
}

TEST(Documents, EndAtBlankLines) {
  const Documents documents("\n\nA. B.\nC.\n \t\r\n\nD.\n\n\nE. F.\n\n", *as_bytes);
  EXPECT_EQ(sentences_of(documents), (std::vector<std::string>{"A.", "B.", "C.", "D.", "E.", "F."}));
  ASSERT_EQ(documents.documents(), 3u);
  EXPECT_EQ(documents.first_of(1), 3u);
  EXPECT_EQ(documents.first_of(2), 4u);
  EXPECT_EQ(documents.first_of(3), 6u);
  const std::size_t expected[] = {0, 0, 0, 1, 2, 2};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(documents.document_of(i), expected[i]) << i;
}

TEST(Documents, AreAHundredSentencesWhereNoLineIsBlank) {
  std::string text;
  for (int i = 0; i < 250; ++i) text += "Line " + std::to_string(i) + ".\n";
  const Documents documents(text, *as_bytes);
  EXPECT_EQ(documents.documents(), 3u);
  EXPECT_EQ(documents.first_of(1), 100u);
  EXPECT_EQ(documents.first_of(2), 200u);
  EXPECT_EQ(documents.first_of(3), 250u);
}

TEST(Documents, OfNothingAreNone) {
  for (const char* text : {"", "\n\n", " \n\t\n"}) {
    const Documents documents(text, *as_bytes);
    EXPECT_EQ(documents.documents(), 0u);
    EXPECT_EQ(documents.sentences(), 0u);
  }
}

TEST(UnigramEntropy, IsThatOfTheCounts) {
  EXPECT_EQ(unigram_entropy({}), 0);
  EXPECT_EQ(unigram_entropy(std::vector<std::int32_t>{7, 7}), 0);
  EXPECT_NEAR(unigram_entropy(std::vector<std::int32_t>{1, 2, 3, 4}), std::log(4), 1e-15);
  EXPECT_NEAR(unigram_entropy(std::vector<std::int32_t>{1, 1, 1, 2}), 2 * std::log(2) - 0.75 * std::log(3),
              1e-15);
}

}  // namespace
}  // namespace stowage::samples
