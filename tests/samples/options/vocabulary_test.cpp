#include "samples/task/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;

TEST(Vocabulary, IsPaddedToAMultipleOf64) {
  const auto padded = [](std::int64_t tokens) {
    Options options;
    set_vocabulary(options, tokens, "it is");
    EXPECT_EQ(options.model.vocabulary, tokens);
    return options.model.padded_vocabulary;
  };
  EXPECT_EQ(padded(256), 256);
  EXPECT_EQ(padded(257), 320);
  EXPECT_EQ(padded(50257), 50304);
}

TEST(Vocabulary, OfAModelFromAFileIsTheFiles) {
  Options options;
  options.init = "model";
  options.model.vocabulary = 300;
  set_vocabulary(options, 256, "it is");
  EXPECT_EQ(options.model.vocabulary, 300);
  EXPECT_EQ(options.model.padded_vocabulary, 320);
  try {
    set_vocabulary(options, 301, "the tokenizer's is");
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("--init model: config.json has vocab_size 300, and the tokenizer's is 301"));
  }
}

TEST(TokenizerOf, IsThatOfBytesUnlessOneIsNamed) {
  EXPECT_EQ(tokenizer_of({})->vocabulary_size(), 256);
  Options options;
  options.tokenizer = "no/such/place";
  try {
    tokenizer_of(options);
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("--tokenizer"));
    EXPECT_THAT(error.what(), HasSubstr("no/such/place"));
  }
}

TEST(Fingerprint, TellsTokenizersApart) {
  const auto of = [](const char* text) {
    return fingerprint(*byte_pair_tokenizer(train_byte_pairs(text, 258)));
  };
  EXPECT_EQ(of("abab"), of("ababab"));
  EXPECT_NE(of("abab"), of("cdcd"));
}

}  // namespace
}  // namespace stowage::samples
