#include "tools/cli/tokens_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/tokenizer.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using Ids = std::vector<std::int32_t>;

class TokensCommandTest : public ::testing::Test {
 protected:
  TokensCommandTest() {
    train_ = {folder_.make("x.txt", text_), 300, folder_.file("vocabulary")};
    encode_.text_file = train_.text_file;
    encode_.tokenizer = train_.output_folder;
    encode_.output_file = folder_.file("x.bin");
  }
  Ids tokens() const {
    const TokenShard shard(encode_.output_file);
    Ids ids(static_cast<std::size_t>(shard.size()));
    shard.read(0, ids);
    return ids;
  }
  TemporaryFolder folder_;
  const std::string text_ = "the cat and the other cat<|endoftext|>then\nthe hat and the mat";
  TokensTrainCommand train_;
  TokensEncodeCommand encode_;
  std::string output_;
};

TEST_F(TokensCommandTest, TrainsThenEncodes) {
  EXPECT_EQ(run_tokens_train_command(train_, output_), 0);
  EXPECT_THAT(output_, testing::MatchesRegex("text +62 bytes\nvocabulary +2[0-9]+ tokens, [0-9]+ merges\n"));
  EXPECT_EQ(run_tokens_encode_command(encode_, output_), 0);
  const auto tokenizer = load_tokenizer(train_.output_folder);
  EXPECT_EQ(tokens(), tokenizer->encode(text_));
  EXPECT_EQ(tokenizer->decode(tokens()), text_);
  EXPECT_THAT(output_, testing::HasSubstr("shard         version 1\n"));
  EXPECT_EQ(folder_.entries(), 3U);
}

TEST_F(TokensCommandTest, EncodesBytesAndTheVersionThatIsAskedFor) {
  encode_.tokenizer = "bytes";
  encode_.version = ShardVersion::four_bytes;
  EXPECT_EQ(run_tokens_encode_command(encode_, output_), 0);
  EXPECT_EQ(TokenShard(encode_.output_file).version(), ShardVersion::four_bytes);
  EXPECT_EQ(tokens().size(), text_.size());
}

TEST_F(TokensCommandTest, LongTextsInParts) {
  std::string text;
  for (int line = 0; line < 120000; ++line)
    text += "the cat and the other cat, line " + std::to_string(line) + "\n";
  encode_.text_file = folder_.make("long.txt", text);
  encode_.tokenizer = "bytes";
  std::vector<std::string> told;
  encode_.progress = [&](const std::string& what) { told.push_back(what); };
  EXPECT_EQ(run_tokens_encode_command(encode_, output_), 0);
  EXPECT_EQ(told.size(), 2U);
  EXPECT_EQ(byte_tokenizer()->decode(tokens()), text);
}

TEST_F(TokensCommandTest, NamesWhatIsWrong) {
  const auto train_refused = [&](const std::string& words) {
    test::expect_refused([&] { run_tokens_train_command(train_, output_); }, words);
  };
  const auto encode_refused = [&](const std::string& words) {
    test::expect_refused([&] { run_tokens_encode_command(encode_, output_); }, words);
  };
  encode_refused("vocabulary' is not there; give a folder with");
  encode_.tokenizer = folder_.make("large.txt", "[UNK]" + std::string(69999, '\n') + "x");
  encode_.version = ShardVersion::two_bytes;
  encode_refused("--shard-version: the 70000 ids of ");
  encode_.tokenizer = "bytes";
  encode_.output_file = folder_.file("none/x.bin");
  encode_refused("none/x.bin: cannot be written (No such file");
  encode_.text_file = train_.text_file = folder_.make("empty.txt", "");
  encode_refused("empty.txt' is empty");
  train_refused("empty.txt' is empty");
  train_.text_file = folder_.make("y.txt", "y");
  train_.vocabulary_size = 5;
  train_refused("a vocabulary of 5 tokens cannot be learned");
  train_.output_folder = folder_.file("none/vocabulary");
  train_refused("--output: '" + train_.output_folder + "' cannot be made");
  train_.output_folder = train_.text_file;
  train_refused("cannot be made");
}

}  // namespace
}  // namespace stowage
