// train_gpt --generate from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

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
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
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

class TrainGptGenerateIds : public TrainGptGenerate {
 protected:
  static Words ids_of(const std::string& model, const Words& more) {
    Words words = {"--init", model, "--temperature", "0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Returns the lines that the program writes.
  static Words written(const Words& words) {
    const ProgramResult result = run_train_gpt(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.errors, "");
    Words lines;
    std::istringstream text(result.output);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }
  // A copy of the fixture whose file `name` has these contents.
  std::string llama_with(const std::string& name, const std::string& contents) const {
    const std::string copy = folder_.file("llama");
    std::filesystem::remove_all(copy);
    std::filesystem::copy(llama_, copy);
    std::ofstream(copy + '/' + name) << contents;
    return copy;
  }

  const std::string llama_ = std::string(STOWAGE_ROOT) + "/tests/fixtures/model_files/llama";
  std::string prompt_ = folder_.make("prompt", "17 4\n 255\t9 ");
};

TEST_F(TrainGptGenerateIds, WritesTheContinuationALineATime) {
  const Words all = written(ids_of(llama_, {"--generate-ids", prompt_, "--tokens", "12"}));
  ASSERT_EQ(all.size(), 12U);
  const Words some = written(ids_of(llama_, {"--generate-ids", prompt_, "--tokens", "3"}));
  EXPECT_EQ(some, Words(all.begin(), all.begin() + 3));
  // What was written is a prompt, too.
  std::string longer = contents_of(prompt_);
  for (const std::string& id : some) longer += id + "\n";
  const std::string place = folder_.make("longer", longer);
  EXPECT_EQ(written(ids_of(llama_, {"--generate-ids", place, "--tokens", "9"})),
            Words(all.begin() + 3, all.end()));
  EXPECT_TRUE(written(ids_of(llama_, {"--generate-ids", prompt_, "--tokens", "0"})).empty());
  EXPECT_NE(written({"--init", llama_, "--generate-ids", prompt_, "--tokens", "12", "--temperature", "9"}),
            all);
  const std::string command = std::string("echo 17 4 255 9 | ") + STOWAGE_TRAIN_GPT + " --init " + llama_ +
                              " --generate-ids - --tokens 1 --temperature 0";
  EXPECT_EQ(well(run_program("/bin/sh", {"-c", command})).output, all.front() + "\n");
}

TEST_F(TrainGptGenerateIds, EndsAtAStopToken) {
  const Words rest = {"--generate-ids", prompt_, "--tokens", "12"};
  const Words all = written(ids_of(llama_, rest));
  const std::string& stop = all[5];
  const Words until(all.begin(), std::find(all.begin(), all.end(), stop));
  Words asked = rest;
  asked.insert(asked.end(), {"--stop-ids", "299," + stop});
  EXPECT_EQ(written(ids_of(llama_, asked)), until);
  const std::string one = "{\"eos_token_id\": " + stop + "}";
  const std::string several = "{\"eos_token_id\": [299, " + stop + "]}";
  for (const std::string& text : {one, several})
    EXPECT_EQ(written(ids_of(llama_with("generation_config.json", text), rest)), until);
  std::string config = contents_of(llama_ + "/config.json");
  const std::string before = "\"eos_token_id\": 2";
  config.replace(config.find(before), before.size(), "\"eos_token_id\": [" + stop + "]");
  const std::string copy = llama_with("config.json", config);
  EXPECT_EQ(written(ids_of(copy, rest)), all) << "generation_config.json comes first";
  std::filesystem::remove(copy + "/generation_config.json");
  EXPECT_EQ(written(ids_of(copy, rest)), until);
  asked.back() = "none";
  EXPECT_EQ(written(ids_of(copy, asked)), all);
}

TEST_F(TrainGptGenerateIds, TakesACheckpointToo) {
  const std::string out = folder_.file("out");
  train({"--export", out, "--type", "bf16"});
  const Words rest = {
      "--generate-ids", folder_.make("bytes", "111 110 101"), "--temperature", "0", "--tokens", "9"};
  const auto from = [&](Words words) {
    words.insert(words.end(), rest.begin(), rest.end());
    return written(words);
  };
  const Words ids = from({"--checkpoint", dir_});
  EXPECT_EQ(ids.size(), 9U);
  EXPECT_EQ(from({"--resume", list_checkpoints(dir_).front().path}), ids);
  // The export has f32 masters, which --type rounds.
  EXPECT_EQ(from({"--init", out, "--type", "bf16", "--stop-ids", "none"}), ids);
}

TEST_F(TrainGptGenerateIds, RefusesWhatIsNoPrompt) {
  const auto refused = [&](const std::string& text, const Words& parts) {
    Words named = {"--generate-ids " + folder_.file("bad")};
    named.insert(named.end(), parts.begin(), parts.end());
    expect_refused(ids_of(llama_, {"--generate-ids", folder_.make("bad", text)}), named);
  };
  refused("", {"there is no id", "from 0 to 299"});
  refused(" \n", {"there is no id"});
  refused("1 2 -3", {"number 3 is \"-3\""});
  refused("1 300", {"number 2 is \"300\"", "from 0 to 299"});
  for (const char* word : {"x", "1.5", "0x1", "+1", "1,2", "99999999999999999999", "1\x1b[2J"})
    refused(word, {"number 1 is \""});
  refused(std::string("1 2\0 3", 6), {"number 2"});
  std::string many;
  for (int i = 0; i <= 1 << 20; ++i) many += "1 ";
  refused(many, {"more than 1048576 ids"});
  expect_refused(ids_of(llama_, {"--generate-ids", folder_.file("nowhere")}),
                 {"--generate-ids", "cannot be read"});
  expect_refused(ids_of(llama_, {"--generate-ids", folder_.file("")}), {"--generate-ids", "cannot be read"});
}

TEST_F(TrainGptGenerateIds, RefusesFlagsAndFilesThatContradict) {
  const Words from = ids_of(llama_, {"--generate-ids", prompt_});
  const auto with = [&](const Words& more) {
    Words words = from;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_refused({"--generate-ids", prompt_}, {"--generate-ids: which model"});
  expect_refused(with({"--generate", "x"}), {"--generate and --generate-ids"});
  expect_refused(with({"--export", folder_.file("out")}), {"--export", "--generate-ids trains nothing"});
  expect_refused({"--generate", "x", "--init", llama_, "--stop-ids", "1"},
                 {"--stop-ids", "without --generate-ids"});
  for (const char* ids : {"300", "-1", "x", "", "1;2"})
    expect_refused(with({"--stop-ids", ids}), {"--stop-ids"});
  for (const char* ids : {"\"x\"", "-1", "300", "[1, 300]", "1.5", "{}"}) {
    const std::string copy =
        llama_with("generation_config.json", std::string("{\"eos_token_id\": ") + ids + "}");
    expect_refused(ids_of(copy, {"--generate-ids", prompt_}),
                   {copy + "/generation_config.json", "eos_token_id"});
  }
  const std::string copy = llama_with("generation_config.json", "{");
  expect_refused(ids_of(copy, {"--generate-ids", prompt_}), {copy + "/generation_config.json"});
  EXPECT_EQ(written(ids_of(llama_with("generation_config.json", "{}"),
                           {"--generate-ids", prompt_, "--tokens", "2"}))
                .size(),
            2U);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Keys and values of a thousand million tokens: 256 GB.
TEST_F(TrainGptGenerateIds, RefusesWhatTheHostHasNoRoomFor) {
  const Words words = {"-c",
                       "ulimit -v 16000000; exec \"$0\" \"$@\"",
                       STOWAGE_TRAIN_GPT,
                       "--init",
                       llama_,
                       "--generate-ids",
                       prompt_,
                       "--tokens",
                       "1000000000"};
  expect_refusal(run_program("/bin/sh", words),
                 {"host memory: ", "needed", "keys and values of 1,000,000,003 tokens", "fewer --tokens"});
}
#endif

TEST_F(TrainGptGenerateIds, EndsQuietlyWhereNobodyReads) {
  const Words words = ids_of(llama_, {"--generate-ids", prompt_, "--tokens", "100000", "--stop-ids", "none"});
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM}) {
    const ProgramResult result = run_train_gpt(words, "\n", signal);
    EXPECT_EQ(result.errors, "");
    EXPECT_NE(result.exit_code, 0);
  }
}

}  // namespace
}  // namespace stowage::samples
