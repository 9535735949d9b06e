// train_bert from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stowage/checkpoint.h"
#include "stowage/model_files.h"
#include "stowage/tokenizer.h"
#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const std::string fixtures = std::string(STOWAGE_ROOT) + "/tests/fixtures/";

class TrainBert : public ::testing::Test {
 protected:
  Words with(const Words& more) const {
    Words words = {"--data",           text_,         "--device",   "simulated", "--machine", machine_,
                   "--link-bandwidth", "unthrottled", "--steps",    "6",         "--policy",  "none",
                   "--warmup",         "2",           "--sequence", "16",        "--batch",   "4"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words small(const Words& more) const {
    Words words =
        with({"--layers", "1", "--width", "16", "--heads", "2", "--dropout", "0.1", "--vocabulary", "280",
              "--evaluate-every", "250", "--evaluation-samples", "10", "--evaluation-share", "0.2"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static ProgramResult run(const Words& words) { return run_program(STOWAGE_TRAIN_BERT, words); }
  static ProgramResult run_well(const Words& words) {
    ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result;
  }
  static void expect_refused(const Words& words, const Words& parts) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.errors, testing::StartsWith("train_bert: "));
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    for (const std::string& part : parts) EXPECT_THAT(result.errors, HasSubstr(part));
  }
  std::vector<json> log_lines() const {
    std::vector<json> result;
    std::istringstream lines(contents_of(log_));
    for (std::string line; std::getline(lines, line);) result.push_back(json::parse(line));
    return result;
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", documents());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32}));
  std::string log_ = folder_.file("log");
};

TEST_F(TrainBert, TellsBothTasksApart) {
  const ProgramResult result = run_well(small({"--evaluate-every", "4", "--log", log_}));
  EXPECT_THAT(result.output, HasSubstr("tokens of 284 that were learned from it"));
  EXPECT_THAT(result.output, HasSubstr("masked tokens and next sentences together"));
  EXPECT_THAT(result.output, HasSubstr("evaluation    masked tokens: loss "));
  EXPECT_THAT(result.output, HasSubstr("right of 10 (by chance 50%)"));
  const std::vector<json> lines = log_lines();
  ASSERT_EQ(lines.size(), 8U);
  for (const std::size_t line : {4U, 7U}) {
    const json& values = lines[line].at("evaluation");
    EXPECT_EQ(values.size(), 4U);
    for (const char* share : {"masked_accuracy", "next_sentence_accuracy"}) {
      EXPECT_GE(values.at(share), 0);
      EXPECT_LE(values.at(share), 1);
    }
    // Hardly trained: about as likely as not, and one of 284 tokens.
    EXPECT_NEAR(values.at("next_sentence_loss").get<double>(), 0.69, 0.2);
    EXPECT_NEAR(values.at("masked_loss").get<double>(), 5.6, 0.7);
  }
  EXPECT_EQ(lines[7].at("step"), 6);
}

TEST_F(TrainBert, SameNumbersUnderAnotherPlanAndFromACheckpoint) {
  const std::string dir = folder_.file("checkpoints");
  run_well(small({"--weights", folder_.file("whole")}));
  const std::string expected = contents_of(folder_.file("whole"));
  run_well(small({"--policy", "layer-stream", "--threads", "1", "--checkpoint", dir, "--checkpoint-every",
                  "2", "--weights", folder_.file("a")}));
  EXPECT_EQ(contents_of(folder_.file("a")), expected);
  const std::string second = list_checkpoints(dir).back().path;
  EXPECT_EQ(Checkpoint(second).state().step, 2U);
  run_well(small({"--resume", second, "--policy", "zero-offload", "--weights", folder_.file("b")}));
  EXPECT_EQ(contents_of(folder_.file("b")), expected);
  expect_refused(small({"--resume", second, "--vocabulary", "281"}), {"'configuration."});
  expect_refused(small({"--resume", second, "--evaluation-share", "0.3"}), {"'configuration.data.text'"});
}

TEST_F(TrainBert, KeepsTheShareOfTokensThatARunBeganWith) {
  const std::string dir = folder_.file("checkpoints");
  const auto half = [&](Words more) {
    more.insert(more.end(), {"--keep-tokens", "0.5", "--evaluate-every", "3"});
    return small(more);
  };
  const ProgramResult result = run_well(half({"--weights", folder_.file("whole"), "--log", log_}));
  EXPECT_THAT(result.output, HasSubstr("evaluation    masked tokens: loss "));
  run_well(
      half({"--policy", "layer-stream", "--threads", "1", "--checkpoint", dir, "--checkpoint-every", "2"}));
  const std::string second = list_checkpoints(dir).back().path;
  EXPECT_EQ(Checkpoint(second).state().configuration.at("model.keep_tokens"), "0.5");
  const ProgramResult resumed = run_well(
      half({"--resume", second, "--weights", folder_.file("resumed"), "--export", folder_.file("out")}));
  EXPECT_EQ(contents_of(folder_.file("resumed")), contents_of(folder_.file("whole")));
  EXPECT_THAT(resumed.output, HasSubstr("which no file says: evaluate with --keep-tokens 0.5"));
  for (const Words& other : {Words{"--keep-tokens", "1"}, {"--keep-tokens", "0.25"}, {}}) {
    Words words{"--resume", second, "--evaluate-every", "3"};
    words.insert(words.end(), other.begin(), other.end());
    expect_refused(small(words),
                   {"'configuration.model.keep_tokens' is \"0.5\"", other.empty() ? "\"1\"" : ""});
  }
}

// As files from before there was such a field.
TEST_F(TrainBert, ACheckpointOfAllTokensDoesNotSaySo) {
  const std::string dir = folder_.file("checkpoints");
  const std::string told =
      run_well(small({"--keep-tokens", "1", "--checkpoint", dir, "--export", folder_.file("out")})).output;
  EXPECT_THAT(told, ::testing::Not(HasSubstr("keep-tokens")));
  const std::string last = list_checkpoints(dir).front().path;
  EXPECT_FALSE(Checkpoint(last).state().configuration.contains("model.keep_tokens"));
}

TEST_F(TrainBert, LearnsWhatIsMasked) {
  run_well(small({"--steps", "150", "--learning-rate", "0.01", "--dropout", "0", "--batch", "16", "--log",
                  log_, "--evaluate-every", "150"}));
  const json values = log_lines().back().at("evaluation");
  EXPECT_LT(values.at("masked_loss").get<double>(), 4.5);
}

TEST_F(TrainBert, WithoutTrainingTheFileStaysWhatItIs) {
  const std::string init = fixtures + "model_files/bert";
  const std::string vocab = folder_.make(
      "vocab.txt",
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsentence\nof\nthe\ndocument\n.\n0\n1\n2\n3\n4\n5\n6\n7\n");
  run_well(with({"--init", init, "--tokenizer", vocab, "--steps", "0", "--export", folder_.file("out")}));
  EXPECT_EQ(contents_of(folder_.file("out/model.safetensors")), contents_of(init + "/model.safetensors"));
  EXPECT_EQ(read_model_description(folder_.file("out")), read_model_description(init));
}

TEST_F(TrainBert, TheLearnedTokenizerIsExportedWithTheModel) {
  const std::string out = folder_.file("out");
  run_well(small({"--steps", "2", "--export", out}));
  EXPECT_EQ(load_tokenizer(out)->vocabulary_size(), 284);  // with [CLS], [SEP], [PAD] and [MASK]
  EXPECT_EQ(read_model_description(out).config.vocabulary, 284);
  const ProgramResult again = run_well(with({"--init", out, "--tokenizer", out, "--steps", "1",
                                             "--evaluate-every", "1", "--evaluation-share", "0.2"}));
  EXPECT_THAT(again.output, HasSubstr("tokens of 284,"));
  EXPECT_THAT(again.output, HasSubstr("init          " + out));
}

TEST_F(TrainBert, RefusesWhatDoesNotGoTogether) {
  expect_refused({}, {"--data"});
  expect_refused(small({"--sample", "3"}), {"--sample", "train_bert --help"});
  expect_refused(small({"--data", folder_.make("one", "a b c. d e f.\n")}), {"--data", "single document"});
  expect_refused(small({"--evaluation-share", "0.001"}),
                 {"--evaluation-share 0.001", "there is no sentence in it"});
  expect_refused(small({"--sequence", "4"}), {"at least 5"});
  expect_refused(with({"--init", fixtures + "model_files/gpt2"}), {"--init", "gpt2"});
  expect_refused(with({"--init", fixtures + "model_files/bert"}), {"--init", "give --tokenizer"});
  expect_refused(with({"--init", fixtures + "model_files/bert", "--tokenizer", fixtures + "tokens/bert"}),
                 {"--init", "vocab_size 40"});
  expect_refused(small({"--tokenizer", folder_.file("none")}), {"--tokenizer", folder_.file("none")});
  expect_refused(small({"--evaluation-data", text_, "--log", text_}), {"--log", text_});
  EXPECT_EQ(contents_of(text_), documents());
}

}  // namespace
}  // namespace stowage::samples
