#include "samples/data/text_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <set>

#include "stowage/error.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

void expect_unreadable(const std::string& path, const std::string& why) {
  try {
    read_text(path);
    ADD_FAILURE() << path << " was read";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--data " + path + ": "));
    EXPECT_THAT(error.what(), testing::HasSubstr(why));
  }
}

TEST(ReadText, GivesEveryByte) {
  const TemporaryFolder folder;
  std::string all;
  for (int repeat = 0; repeat < 1000; ++repeat) {
    for (int c = 0; c < 256; ++c) all.push_back(static_cast<char>(c));
  }
  EXPECT_EQ(read_text(folder.make("all", all)), all);
}

TEST(ReadText, RefusesWhatIsNoText) {
  const TemporaryFolder folder;
  expect_unreadable(folder.file("nothing"), "there is no such file");
  expect_unreadable(folder.file(""), "directory");
  expect_unreadable(folder.make("empty", ""), "empty");
  expect_unreadable("/dev/null", "not a file");
  expect_unreadable(folder.make("file", "x") + "/below", "no such file");
}

TEST(ReadText, RefusesWhatItMayNotRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TemporaryFolder folder;
  const std::string path = folder.make("secret", "text");
  ::chmod(path.c_str(), 0);
  expect_unreadable(path, "Permission denied");
}

TEST(BigramEntropy, OfLiterals) {
  EXPECT_EQ(bigram_entropy(""), 0);
  EXPECT_EQ(bigram_entropy("a"), 0);
  EXPECT_EQ(bigram_entropy("abababab"), 0);  // each byte tells the next
  // After a: b twice, c once. After b and c: a, always. 3 of 5 pairs start with a.
  const double after_a = -(2.0 / 3 * std::log(2.0 / 3) + 1.0 / 3 * std::log(1.0 / 3));
  EXPECT_NEAR(bigram_entropy("abacab"), 3.0 / 5 * after_a, 1e-15);
  // A byte above 127 is a byte like any other.
  EXPECT_NEAR(bigram_entropy("\xff\xff\xfe\xff\xff"), 3.0 / 4 * after_a, 1e-15);
}

TEST(BatchSource, TargetsAreTheNextBytes) {
  const std::string text = "the quick brown fox\xff jumps";
  const BatchSource source(text, 3, 5, 7);
  Batch batch;
  for (std::uint64_t step = 0; step < 50; ++step) {
    source.fill(step, batch);
    ASSERT_EQ(batch.tokens.size(), 15U);
    ASSERT_EQ(batch.targets.size(), 15U);
    for (std::size_t sample = 0; sample < 3; ++sample) {
      std::string seen;
      for (std::size_t i = 0; i < 5; ++i) seen.push_back(static_cast<char>(batch.tokens[sample * 5 + i]));
      seen.push_back(static_cast<char>(batch.targets[sample * 5 + 4]));
      EXPECT_NE(text.find(seen), std::string::npos) << seen;
      for (std::size_t i = 0; i + 1 < 5; ++i) {
        EXPECT_EQ(batch.targets[sample * 5 + i], batch.tokens[sample * 5 + i + 1]);
      }
    }
  }
}

TEST(BatchSource, AStepsBatchIsAFunctionOfItsNumber) {
  const std::string text(1000, 'x');
  std::string distinct = text;
  for (std::size_t i = 0; i < distinct.size(); ++i) distinct[i] = static_cast<char>(i * i % 251);
  const BatchSource one(distinct, 4, 16, 1);
  const BatchSource other(distinct, 4, 16, 1);
  const BatchSource reseeded(distinct, 4, 16, 2);
  Batch a;
  Batch b;
  one.fill(0, a);
  one.fill(5, a);
  other.fill(5, b);
  EXPECT_EQ(a.tokens, b.tokens);
  reseeded.fill(5, b);
  EXPECT_NE(a.tokens, b.tokens);
  one.fill(6, b);
  EXPECT_NE(a.tokens, b.tokens);
}

TEST(BatchSource, ReachesBothEndsOfTheText) {
  const std::string text = "abcdef";  // three starts of 3 tokens and their target
  const BatchSource source(text, 1, 3, 1);
  std::set<std::int32_t> starts;
  Batch batch;
  for (std::uint64_t step = 0; step < 100; ++step) {
    source.fill(step, batch);
    starts.insert(batch.tokens.front());
  }
  EXPECT_EQ(starts, (std::set<std::int32_t>{'a', 'b', 'c'}));
}

TEST(BatchSource, OneSequenceAndItsTargetAreEnough) {
  Batch batch;
  BatchSource("abcd", 2, 3, 1).fill(9, batch);
  EXPECT_THAT(batch.targets, testing::ElementsAre('b', 'c', 'd', 'b', 'c', 'd'));
  EXPECT_THROW(BatchSource("abc", 2, 3, 1), InvalidInput);
  EXPECT_THROW(BatchSource("", 2, 3, 1), InvalidInput);
}

TEST(SplitText, TheTailBeginsBehindALine) {
  const SplitText parts = split_text("aaaa\nbbbb\ncccc\n", 0.5);
  EXPECT_EQ(parts.training, "aaaa\nbbbb\n");
  EXPECT_EQ(parts.held_out, "cccc\n");
  EXPECT_EQ(split_text("aaaa\nbbbb\n", 0).training, "aaaa\nbbbb\n");
  EXPECT_EQ(split_text("aaaa\nbbbb\n", 0).held_out, "");
  // Where no line ends, anywhere.
  EXPECT_EQ(split_text("aaaabbbb", 0.25).held_out, "bb");
}

TEST(BatchSource, OfTokensDrawsWhatItDrawsOfBytes) {
  const std::string text = "the same text in bytes and in tokens";
  const std::vector<std::int32_t> tokens(text.begin(), text.end());
  const BatchSource bytes(text, 3, 5, 7);
  const BatchSource ids(std::span<const std::int32_t>(tokens), 3, 5, 7);
  Batch one, other;
  bytes.fill(9, one);
  ids.fill(9, other);
  EXPECT_EQ(one.tokens, other.tokens);
  EXPECT_EQ(one.targets, other.targets);
}

TEST(BatchSource, SamplesOneAfterAnother) {
  const std::string text = "abcdefghijk";
  const BatchSource source(text, 1, 5, 1);
  EXPECT_EQ(source.samples(), 2U);
  std::vector<std::int32_t> tokens(5), targets(5);
  source.sample(1, tokens, targets, {});
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{'f', 'g', 'h', 'i', 'j'}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{'g', 'h', 'i', 'j', 'k'}));
}

TEST(EncodeData, ByPartsGivesTheSameTokens) {
  std::string text;
  for (int i = 0; text.size() < 5U << 18U; ++i) text += "line " + std::to_string(i) + "\n";
  const auto tokenizer = byte_pair_tokenizer(train_byte_pairs(text.substr(0, 5000), 300));
  EXPECT_EQ(encode_data(*tokenizer, text, "it"), tokenizer->encode(text));
}

}  // namespace
}  // namespace stowage::samples
