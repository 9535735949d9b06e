#include "samples/data/pair_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

using testing::HasSubstr;

const auto bytes = byte_tokenizer();

// Documents of their own letter each: "aaa1.", "aaa2.", …
std::string lettered_text(int documents, int sentences) {
  std::string text;
  for (int d = 0; d < documents; ++d) {
    for (int s = 0; s < sentences; ++s)
      text += std::string(static_cast<std::size_t>(1 + s % 7), static_cast<char>('a' + d)) +
              std::to_string(s) + ".\n";
    text += '\n';
  }
  return text;
}

constexpr std::int64_t batch = 64, sequence = 48;
constexpr std::size_t width = sequence;

class PairSourceTest : public testing::Test {
 protected:
  Documents documents{lettered_text(10, 30), *bytes};
  SpecialIds ids = special_ids(*bytes);
  PairSource source{documents, ids, batch, sequence, 5};

  // The row before it was masked, of tokens that are seen.
  static std::vector<std::int32_t> unmasked(const PairBatch& made, std::size_t row) {
    std::vector<std::int32_t> tokens;
    for (std::size_t at = row * width; at < (row + 1) * width && made.seen[at] == 1; ++at)
      tokens.push_back(made.targets[at] >= 0 ? made.targets[at] : made.tokens[at]);
    return tokens;
  }
};

TEST(SpecialIds, OfAVocabularyThatLacksThemComeBehindIt) {
  EXPECT_EQ(special_ids(*bytes), (SpecialIds{256,
                                             257,
                                             258,
                                             259,
                                             260,
                                             {{SpecialToken::classification, 256},
                                              {SpecialToken::separator, 257},
                                              {SpecialToken::padding, 258},
                                              {SpecialToken::mask, 259}}}));
  const auto words = word_piece_tokenizer("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
  EXPECT_EQ(special_ids(*words), (SpecialIds{2, 3, 0, 4, 6, {}}));
}

TEST_F(PairSourceTest, APartOfTheSamplesIsThatOfAll) {
  PairBatch all, part;
  source.fill(3, all);
  source.fill(3, 10, 4, part);
  const auto rows = [](const std::vector<std::int32_t>& values, std::size_t row, std::size_t count) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * width);
    return std::vector<std::int32_t>(begin, begin + static_cast<std::ptrdiff_t>(count * width));
  };
  EXPECT_EQ(part.tokens, rows(all.tokens, 10, 4));
  EXPECT_EQ(part.targets, rows(all.targets, 10, 4));
  EXPECT_EQ(part.seen, rows(all.seen, 10, 4));
  ASSERT_EQ(part.next_sentence.size(), 4U);
  EXPECT_EQ(part.next_sentence[3], all.next_sentence[13]);
}

// A line of a million tokens: it would take minutes to move them one by one.
TEST(PairSource, ShortensLongLinesAtOnce) {
  const std::string letters(1 << 20, 'a');
  const Documents documents(letters + "\n\n" + letters, *bytes);
  const PairSource source(documents, special_ids(*bytes), 8, sequence, 5);
  PairBatch made;
  source.fill(0, made);
  EXPECT_EQ(std::count(made.seen.begin(), made.seen.end(), 1), 8 * sequence);
}

TEST(PairSource, SaysThatThereIsNoSentence) {
  const Documents documents(" \n\n \n", *bytes);
  try {
    const PairSource source(documents, special_ids(*bytes), 8, sequence, 5);
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("there is no sentence in it"));
  }
}

TEST_F(PairSourceTest, FramesTwoRunsOfTextThatFill) {
  PairBatch made;
  source.fill(3, made);
  ASSERT_EQ(made.tokens.size(), batch * width);
  ASSERT_EQ(made.next_sentence.size(), static_cast<std::size_t>(batch));
  std::string text(documents.tokens().begin(), documents.tokens().end());
  for (std::size_t row = 0; row < static_cast<std::size_t>(batch); ++row) {
    const std::vector<std::int32_t> tokens = unmasked(made, row);
    ASSERT_EQ(tokens.front(), ids.classification);
    ASSERT_EQ(tokens.back(), ids.separator);
    const auto middle = std::find(tokens.begin() + 1, tokens.end(), ids.separator);
    ASSERT_NE(middle + 1, tokens.end());
    const std::string first(tokens.begin() + 1, middle), second(middle + 1, tokens.end() - 1);
    EXPECT_NE(text.find(first), std::string::npos) << first;
    EXPECT_NE(text.find(second), std::string::npos) << second;
    EXPECT_FALSE(first.empty() || second.empty());
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t at = row * width + i;
      const auto b_begins = static_cast<std::size_t>(middle - tokens.begin()) + 1;
      EXPECT_EQ(made.seen[at], i < tokens.size() ? 1 : 0);
      EXPECT_EQ(made.token_types[at], i >= b_begins && i < tokens.size() ? 1 : 0);
      if (i >= tokens.size()) {
        EXPECT_EQ(made.tokens[at], ids.padding);
      }
    }
  }
}

TEST_F(PairSourceTest, TheSecondFollowsInHalfOfThemAndElseIsOfAnotherDocument) {
  int follows = 0, both = 0, rows = 0;
  for (std::uint64_t step = 0; step < 40; ++step) {
    PairBatch made;
    source.fill(step, made);
    for (std::size_t row = 0; row < static_cast<std::size_t>(batch); ++row, ++rows) {
      const std::vector<std::int32_t> tokens = unmasked(made, row);
      std::map<std::int32_t, int> letters;
      for (const std::int32_t token : tokens)
        if (token >= 'a' && token <= 'z') ++letters[token];
      const bool follows_here = made.next_sentence[row] == 0;
      follows += follows_here ? 1 : 0;
      if (follows_here) {
        EXPECT_EQ(letters.size(), 1u);
      }
      both += letters.size() == 2 ? 1 : 0;
    }
  }
  EXPECT_NEAR(static_cast<double>(follows) / rows, 0.5, 0.06);
  // Shortening may leave one side without letters.
  EXPECT_GT(both, (rows - follows) * 9 / 10);
}

TEST_F(PairSourceTest, MasksAsThePaperSays) {
  std::uint64_t places = 0, chosen = 0, masked = 0, kept = 0;
  for (std::uint64_t step = 0; step < 40; ++step) {
    PairBatch made;
    source.fill(step, made);
    for (std::size_t at = 0; at < made.tokens.size(); ++at) {
      const std::int32_t truth = made.targets[at] >= 0 ? made.targets[at] : made.tokens[at];
      if (made.seen[at] == 1 && truth < 256) ++places;
      if (made.targets[at] < 0) {
        EXPECT_NE(made.tokens[at], ids.mask);
        continue;
      }
      EXPECT_LT(made.targets[at], 256) << "a token with a meaning of its own";
      EXPECT_LT(made.tokens[at], ids.vocabulary);
      ++chosen;
      masked += made.tokens[at] == ids.mask ? 1 : 0;
      kept += made.tokens[at] == made.targets[at] ? 1 : 0;
    }
  }
  const auto share = [&](std::uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(chosen);
  };
  EXPECT_NEAR(static_cast<double>(chosen) / static_cast<double>(places), 0.15, 0.01);
  EXPECT_NEAR(share(masked), 0.8, 0.02);
  EXPECT_NEAR(share(kept), 0.1, 0.02);
}

TEST_F(PairSourceTest, DependsOnSeedAndStepAlone) {
  PairBatch first, again, other;
  source.fill(7, first);
  source.fill(8, other);
  EXPECT_NE(first.tokens, other.tokens);
  source.fill(7, again);
  EXPECT_EQ(first.tokens, again.tokens);
  EXPECT_EQ(first.targets, again.targets);
  PairSource(documents, ids, batch, sequence, 6).fill(7, other);
  EXPECT_NE(first.tokens, other.tokens);
}

TEST_F(PairSourceTest, RefusesWhatHasNoPairs) {
  const Documents single("One. Two.", *bytes);
  const auto refusal = [&](const Documents& from, std::int64_t length) {
    try {
      PairSource(from, ids, batch, length, 1);
    } catch (const InvalidInput& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(single, sequence), HasSubstr("a single document"));
  EXPECT_THAT(refusal(documents, 4), HasSubstr("take at least 5"));
  PairBatch made;
  PairSource(documents, ids, batch, 5, 1).fill(0, made);
  for (const std::int32_t seen : made.seen) EXPECT_EQ(seen, 1);
}

}  // namespace
}  // namespace stowage::samples
