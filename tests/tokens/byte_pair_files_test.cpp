#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/expect_refused.h"
#include "tests/tokens/fixtures.h"

namespace stowage {
namespace {

class BytePairFilesTest : public ::testing::Test {
 protected:
  BytePairVocabulary vocabulary_ = test::small_vocabulary();
  nlohmann::json vocab_ = nlohmann::json::parse(to_vocab_json(vocabulary_));
  std::string merges_ = to_merges_text(vocabulary_);

  void expect_refused(const std::string& words) const {
    test::expect_refused([&] { byte_pair_tokenizer(vocab_.dump(), merges_); }, words);
  }
};

TEST_F(BytePairFilesTest, AreWrittenAsGpt2Has) {
  EXPECT_EQ(vocab_.size(), vocabulary_.tokens.size());
  EXPECT_EQ(vocab_["!"], 0);
  EXPECT_EQ(vocab_["Ġ"], 220);
  EXPECT_EQ(vocab_["<|endoftext|>"], 264);
  EXPECT_EQ(merges_.substr(0, 18), "#version: 0.2\nh e\n");
}

TEST_F(BytePairFilesTest, LineEndsOfEitherKind) {
  std::string other = merges_;
  for (std::size_t at = 0; (at = other.find('\n', at)) != std::string::npos; at += 2)
    other.replace(at, 1, "\r\n");
  EXPECT_EQ(byte_pair_tokenizer(vocab_.dump(), other)->encode("the other cat"),
            byte_pair_tokenizer(vocab_.dump(), merges_)->encode("the other cat"));
}

TEST_F(BytePairFilesTest, AByteOrderMarkIsPassedOver) {
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(byte_pair_tokenizer(mark + vocab_.dump(), mark + merges_)->encode("the other cat"),
            byte_pair_tokenizer(vocab_.dump(), merges_)->encode("the other cat"));
}

TEST_F(BytePairFilesTest, ASpecialTextThatMergesMakeIsOrdinary) {
  vocab_["<s"] = 265;
  vocab_["<s>"] = 266;
  vocab_["</s>"] = 267;
  const auto special = byte_pair_tokenizer(vocab_.dump(), merges_)->encode("<s></s>");
  EXPECT_EQ(special, (std::vector<std::int32_t>{266, 267}));
  merges_ += "< s\n<s >\n";
  const auto tokenizer = byte_pair_tokenizer(vocab_.dump(), merges_);
  // "<" is a piece with the other symbols, and "s" another.
  EXPECT_EQ(tokenizer->encode("<s>").size(), 3U);
  EXPECT_EQ(tokenizer->encode("</s>"), (std::vector<std::int32_t>{267}));
}

TEST_F(BytePairFilesTest, NamesWhatIsWrongInTheVocabulary) {
  test::expect_refused([&] { byte_pair_tokenizer("{", merges_); }, "vocab.json: ");
  test::expect_refused([&] { byte_pair_tokenizer("[]", merges_); },
                       "vocab.json: 'the text' is not an object");
  const nlohmann::json good = vocab_;
  for (const char* id : {"-1", "16777216", "1.5", "\"1\""}) {
    vocab_["x y"] = nlohmann::json::parse(id);
    expect_refused("vocab.json: 'x y' is not an ");
  }
  vocab_ = good;
  vocab_["x y"] = 264;
  expect_refused("vocab.json: token 'x y': its id 264 is another token's too");
  vocab_ = good;
  vocab_ = {{"a", 0}, {"b", 1}, {"hello", 2}};
  expect_refused("vocab.json: 2 of its tokens stand for a byte");
}

// As one has that was trained on some text alone. The byte 0 is Ā, and 0xe4 ä.
TEST_F(BytePairFilesTest, BytesWithoutATokenAreRefusedWhereTheyCome) {
  vocab_.erase("Ā");
  vocab_.erase("ä");
  const auto tokenizer = byte_pair_tokenizer(vocab_.dump(), merges_);
  EXPECT_EQ(tokenizer->encode("the other cat"),
            byte_pair_tokenizer(to_vocab_json(vocabulary_), merges_)->encode("the other cat"));
  test::expect_refused([&] { tokenizer->encode("a \xe4"); },
                       "vocab.json: the text has the byte 0xe4, for which there is no token");
}

TEST_F(BytePairFilesTest, NamesWhatIsWrongInTheMerges) {
  const std::string good = merges_;
  merges_ = "#version: 0.2\na\n";
  expect_refused("merges.txt: line 2 is not two tokens with a space between them");
  merges_ = "a b c\n";
  expect_refused("merges.txt: line 1 is not two tokens");
  merges_ = "\na b\n";
  expect_refused("merges.txt: line 1 is not two tokens");
  merges_ = good + "q z\n";
  expect_refused("'qz' is no token of vocab.json; give files that belong together");
  merges_ = "zz a\n";
  expect_refused("merges.txt: line 1: 'zz' is no token of vocab.json");
}

}  // namespace
}  // namespace stowage
