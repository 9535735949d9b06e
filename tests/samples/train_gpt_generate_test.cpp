// train_gpt --generate from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "samples/task/generate.h"
#include "stowage/checkpoint.h"
#include "stowage/tokenizer.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

class TrainGptGenerate : public ::testing::Test {
 protected:
  ProgramResult train(const Words& more) const {
    Words words = {"--data",           text_,         "--device", "simulated", "--machine",    machine_,
                   "--link-bandwidth", "unthrottled", "--policy", "none",      "--layers",     "1",
                   "--width",          "16",          "--heads",  "2",         "--sequence",   "8",
                   "--batch",          "4",           "--steps",  "30",        "--dropout",    "0.1",
                   "--learning-rate",  "0.01",        "--warmup", "2",         "--checkpoint", dir_};
    words.insert(words.end(), more.begin(), more.end());
    ProgramResult result = run_train_gpt(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result;
  }
  static std::string generated(const std::string& prompt, const Words& more) {
    Words words = {"--generate", prompt};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_train_gpt(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  }
  static void expect_refused(const Words& words, const Words& parts) {
    const ProgramResult result = run_train_gpt(words);
    EXPECT_EQ(result.output, "");
    expect_refusal(result, parts);
  }
  // A tokenizer's folder.
  std::string words_of(const std::string& text) const {
    const BytePairVocabulary learned = train_byte_pairs(text, 270);
    folder_.make("vocab.json", to_vocab_json(learned));
    folder_.make("merges.txt", to_merges_text(learned));
    return folder_.file("");
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", [] {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "one two three\n";
    return text;
  }());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32}));
  std::string dir_ = folder_.file("checkpoints");
};

TEST_F(TrainGptGenerate, WritesWhatTheTrainedModelWouldHaveWritten) {
  const std::string out = folder_.file("out");
  const std::string output = train({"--sample", "40", "--export", out}).output;
  const std::string before = "temperature 0.8:\n\n";
  const std::string sample = output.substr(output.find(before) + before.size());
  ASSERT_GT(sample.size(), 40U);
  // Neither the sizes nor the dropout need to be said again.
  const Words rest = {"--tokens", "40"};
  const auto from = [&](const Words& more) {
    Words words = rest;
    words.insert(words.end(), more.begin(), more.end());
    return generated("\n", words);
  };
  const std::string text = from({"--checkpoint", dir_});
  EXPECT_EQ(text.size(), 1U + 40 + 1);
  EXPECT_EQ(text, from({"--resume", list_checkpoints(dir_).front().path}));
  EXPECT_EQ(text, from({"--init", out}));
  // What --sample shows is for terminals.
  TerminalText terminal;
  const std::string shown = terminal.add(std::string_view(text).substr(1, text.size() - 2));
  EXPECT_EQ(shown + terminal.finish() + "\n", sample);
  EXPECT_NE(text, from({"--checkpoint", dir_, "--seed", "2"}));
  EXPECT_NE(text, from({"--checkpoint", dir_, "--temperature", "100"}));
}

TEST_F(TrainGptGenerate, TakesThePromptFromAFile) {
  train({});
  const Words rest = {"--checkpoint", dir_, "--tokens", "5"};
  const std::string text = generated("@" + folder_.make("prompt", "one tw"), rest);
  EXPECT_THAT(text, StartsWith("one tw"));
  EXPECT_EQ(text, generated("one tw", rest));
  EXPECT_EQ(text.size(), 6U + 5 + 1);
  EXPECT_EQ(generated("", rest).size(), 5U + 1);
}

TEST_F(TrainGptGenerate, DecodesThroughTheTokenizer) {
  const std::string words = words_of(contents_of(text_));
  EXPECT_THAT(train({"--tokenizer", words, "--sample", "3"}).output, HasSubstr("3 tokens from the model"));
  const std::string text = generated(
      "one", {"--checkpoint", dir_, "--tokenizer", words, "--tokens", "20", "--temperature", "0.01"});
  EXPECT_THAT(text, StartsWith("one"));
  EXPECT_GT(text.size(), 24U) << "tokens of several bytes: " << text;
  expect_refused({"--generate", "x", "--checkpoint", dir_}, {"give --tokenizer"});
}

TEST_F(TrainGptGenerate, RefusesWhatIsNoModel) {
  expect_refused({"--generate", "x"}, {"--generate", "which model"});
  expect_refused({"--generate", "x", "--init", "a", "--checkpoint", "b"}, {"--init"});
  expect_refused({"--generate", "x", "--checkpoint", dir_}, {"--checkpoint " + dir_, "no checkpoint"});
  expect_refused({"--generate", "x", "--resume", dir_}, {"--resume", dir_});
  expect_refused({"--generate", "@" + dir_, "--checkpoint", dir_}, {"--generate", dir_});
  train({"--steps", "1"});
  expect_refused({"--generate", "x", "--checkpoint", dir_, "--temperature", "-0.1"}, {"--temperature"});
  expect_refused({"--generate", "x", "--checkpoint", dir_, "--tokenizer", words_of("aaaa")},
                 {"--tokenizer", "bytes: leave it out"});
}

}  // namespace
}  // namespace stowage::samples
