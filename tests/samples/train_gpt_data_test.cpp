// train_gpt --tokenizer, token shards and evaluation from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stowage/checkpoint.h"
#include "stowage/token_shards.h"
#include "stowage/tokenizer.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class TrainGptData : public ::testing::Test {
 protected:
  ProgramResult run(const Words& more) const {
    Words words = {"--device",         "simulated",   "--machine", machine_, "--policy",   "none",
                   "--link-bandwidth", "unthrottled", "--layers",  "1",      "--width",    "16",
                   "--heads",          "2",           "--batch",   "4",      "--sequence", "8",
                   "--warmup",         "2",           "--steps",   "6"};
    words.insert(words.end(), more.begin(), more.end());
    return run_train_gpt(words);
  }
  ProgramResult run_well(const Words& more) const { return well(run(more)); }
  void expect_refused(const Words& more, const Words& parts) const { expect_refusal(run(more), parts); }
  std::string shard(const std::string& name, std::int32_t count, std::int32_t first) const {
    TokenShardWriter writer(folder_.file(name), ShardVersion::two_bytes);
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < count; ++i) tokens.push_back((first + i * i) % 250);
    writer.append(tokens);
    writer.commit();
    return folder_.file(name);
  }
  static std::vector<json> lines_of(const std::string& path) {
    std::vector<json> result;
    std::istringstream lines(contents_of(path));
    for (std::string line; std::getline(lines, line);) result.push_back(json::parse(line));
    return result;
  }
  std::string words() const {
    const BytePairVocabulary learned = train_byte_pairs(contents_of(text_), 300);
    folder_.make("vocab.json", to_vocab_json(learned));
    folder_.make("merges.txt", to_merges_text(learned));
    return folder_.file("");
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", [] {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "the line " + std::to_string(i * i % 97) + " of it\n";
    return text;
  }());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

TEST_F(TrainGptData, ATokenizersVocabularyIsPadded) {
  const ProgramResult result = run_well({"--data", text_, "--tokenizer", words()});
  EXPECT_THAT(result.output, HasSubstr(" tokens of 300, entropy "));
  EXPECT_THAT(result.output, HasSubstr("4 samples of 8 tokens"));
  // 320 rows of 16, 8 positions of 16, and a layer.
  EXPECT_THAT(result.output, HasSubstr("8,560 parameters"));
  run_well({"--data", text_, "--tokenizer", words(), "--export", folder_.file("out")});
  EXPECT_THAT(contents_of(folder_.file("out/config.json")), HasSubstr("\"vocab_size\": 300"));
  EXPECT_THAT(run_well({"--data", text_, "--plan-only"}).output, HasSubstr("7,536 parameters"));
  expect_refused({"--data", text_, "--tokenizer", folder_.file("none")},
                 {"--tokenizer", folder_.file("none")});
  expect_refused({"--data", text_, "--tokenizer", words(), "--sequence", "4000"},
                 {"--data " + text_, "tokens"});
}

TEST_F(TrainGptData, ShardsResumeToTheSameBytes) {
  std::filesystem::create_directory(folder_.file("shards"));
  shard("shards/a.bin", 70, 1);
  shard("shards/b.bin", 45, 2);
  const std::string dir = folder_.file("checkpoints");
  const Words data = {"--data", folder_.file("shards/*.bin"), "--steps", "9"};
  const auto with = [&](Words more) {
    more.insert(more.end(), data.begin(), data.end());
    return more;
  };
  EXPECT_THAT(run_well(with({"--weights", folder_.file("whole")})).output,
              HasSubstr("115 tokens in 2 shards, 13 samples an epoch"));
  run_well(with({"--checkpoint", dir, "--checkpoint-every", "4", "--weights", folder_.file("a")}));
  EXPECT_EQ(contents_of(folder_.file("a")), contents_of(folder_.file("whole")));
  // In the second epoch; the folder names the same shards.
  const std::string fourth = list_checkpoints(dir).back().path;
  EXPECT_EQ(Checkpoint(fourth).state().data_position,
            (std::map<std::string, std::int64_t>{{"epoch", 1}, {"sample", 3}}));
  run_well({"--data", folder_.file("shards"), "--steps", "9", "--resume", fourth, "--policy", "layer-stream",
            "--weights", folder_.file("b")});
  EXPECT_EQ(contents_of(folder_.file("b")), contents_of(folder_.file("whole")));
  shard("shards/b.bin", 45, 3);
  expect_refused(with({"--resume", fourth}), {"configuration.data.shards"});
}

TEST_F(TrainGptData, RefusesTokensFromOutsideTheVocabulary) {
  TokenShardWriter writer(folder_.file("far.bin"), ShardVersion::two_bytes);
  writer.append(std::vector<std::int32_t>(10000, 7));
  writer.append(std::vector<std::int32_t>{31373});
  writer.commit();
  expect_refused({"--data", folder_.file("far.bin"), "--weights", folder_.file("w")},
                 {"--data", folder_.file("far.bin"), "31373"});
  EXPECT_FALSE(std::filesystem::exists(folder_.file("w")));
  expect_refused({"--data", folder_.make("no.bin", std::string(3000, 'x'))}, {folder_.file("no.bin")});
  expect_refused({"--data", folder_.file("none*.bin")}, {"none*.bin", "no token shard"});
}

TEST_F(TrainGptData, EvaluatesWhatItDoesNotTrainOn) {
  const std::string log = folder_.file("log");
  const ProgramResult result = run_well({"--data", text_, "--evaluate-every", "4", "--log", log, "--dropout",
                                         "0.5", "--evaluation-samples", "6"});
  EXPECT_THAT(result.output, HasSubstr("over 48 bytes not trained on"));
  const std::vector<json> lines = lines_of(log);
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_EQ(lines[4].at("step"), 4);
  EXPECT_EQ(lines[7].at("step"), 6);
  EXPECT_GT(lines[4].at("seconds"), 0);
  for (const std::size_t line : {0, 1, 2, 3, 6}) EXPECT_EQ(lines[line].at("between_seconds"), 0) << line;
  EXPECT_GE(lines[5].at("between_seconds"), lines[4].at("seconds"));  // and is in no step's time
  const double loss = lines[7].at("evaluation").at("loss");
  EXPECT_NEAR(loss, std::log(256.0), 0.5);
  EXPECT_DOUBLE_EQ(lines[7].at("evaluation").at("perplexity").get<double>(), std::exp(loss));
}

// A checkpoint, or a model's files, with what the training itself found, and nothing else.
TEST_F(TrainGptData, WithoutStepsACheckpointIsEvaluated) {
  const std::string dir = folder_.file("saved"), log = folder_.file("log");
  run_well({"--data", text_, "--evaluate-every", "2", "--checkpoint", dir, "--checkpoint-every", "2", "--log",
            log, "--export", folder_.file("out"), "--dropout", "0.1"});
  const std::vector<json> lines = lines_of(log);
  const auto with = [&](Words more) {
    more.insert(more.end(), {"--data", text_, "--steps", "0", "--log", folder_.file("evaluated")});
    EXPECT_THAT(run_well(more).output, HasSubstr("evaluated alone"));  // without gradients and state
    std::vector<json> read = lines_of(folder_.file("evaluated"));
    std::filesystem::remove(folder_.file("evaluated"));
    EXPECT_EQ(read.size(), 1U);
    read.at(0).erase("seconds");
    return read.at(0);
  };
  json second = lines.at(2), last = lines.at(8);
  EXPECT_EQ(last.at("step"), 6);
  second.erase("seconds"), last.erase("seconds");
  const std::string before = list_checkpoints(dir).back().path;
  EXPECT_EQ(with({"--resume", before, "--evaluate-every", "1"}), second);
  EXPECT_EQ(with({"--checkpoint", dir, "--resume", "--evaluation-samples", "64"}), last);
  // Whatever says how it was trained.
  EXPECT_EQ(with({"--resume", before, "--evaluate-every", "1", "--learning-rate", "9", "--seed", "8",
                  "--warmup", "0", "--dropout", "0"}),
            second);
  json of_files = with({"--init", folder_.file("out"), "--evaluate-every", "9"});
  EXPECT_EQ(of_files.at("evaluation"), last.at("evaluation"));
  EXPECT_EQ(of_files.at("step"), 0);
  EXPECT_EQ(list_checkpoints(dir).size(), 3U);
  // The log of the run goes on where the checkpoint is an old one.
  run_well({"--data", text_, "--steps", "0", "--resume", before, "--evaluate-every", "1", "--log", log});
  EXPECT_EQ(lines_of(log).size(), lines.size() + 1);
  const ProgramResult page = run_well({"--data", text_, "--steps", "0", "--resume", before,
                                       "--evaluate-every", "1", "--report", folder_.file("page")});
  EXPECT_THAT(page.output, HasSubstr("step 2; nothing is trained"));
  EXPECT_THAT(contents_of(folder_.file("page")), HasSubstr("evaluation: perplexity"));
}

TEST_F(TrainGptData, WhatATrainingMayHaveSeenIsNotCalledHeldOut) {
  const std::string dir = folder_.file("saved");
  run_well({"--data", text_, "--checkpoint", dir});
  const Words words = {"--data", text_,      "--steps",          "0", "--checkpoint",
                       dir,      "--resume", "--evaluate-every", "1"};
  expect_refused(words, {"--resume " + dir, "may have seen that tail", "--evaluation-data"});
  Words other = words;
  other.insert(other.end(), {"--evaluation-data", folder_.make("other", std::string(2000, 'z'))});
  EXPECT_THAT(run_well(other).output, HasSubstr("not trained on"));
  other.insert(other.end(), {"--width", "32"});
  expect_refused(other, {"configuration.model.width"});
  expect_refused({"--data", text_, "--steps", "0", "--checkpoint", folder_.file("none"), "--resume",
                  "--evaluate-every", "1"},
                 {"--resume " + folder_.file("none"), "no checkpoint in it"});
}

// As many samples as the text holds one after another; shards say themselves what an epoch is.
TEST_F(TrainGptData, EpochsAreSoManySteps) {
  const std::string text = folder_.make("short", std::string(8 * 20 + 1, 'x'));
  const std::string dir = folder_.file("saved");
  EXPECT_THAT(run_well({"--data", text, "--steps", "3"}).output, ::testing::Not(HasSubstr("epochs")));
  const auto run_epochs = [&](const std::string& data, const char* epochs, const Words& more) {
    Words words = {"--device", "simulated", "--machine", machine_, "--policy", "none", "--layers",   "1",
                   "--width",  "16",        "--heads",   "2",      "--batch",  "4",    "--sequence", "8",
                   "--warmup", "2",         "--data",    data,     "--epochs", epochs};
    words.insert(words.end(), more.begin(), more.end());
    return run_train_gpt(words);
  };
  const std::string output = well(run_epochs(text, "1.1", {"--checkpoint", dir})).output;
  EXPECT_THAT(output, HasSubstr("epochs        1.1 of 20 samples: 6 steps"));
  EXPECT_THAT(output, HasSubstr("step 6/6"));
  // 13 samples an epoch.
  std::filesystem::create_directory(folder_.file("shards"));
  shard("shards/a.bin", 70, 1);
  shard("shards/b.bin", 45, 2);
  EXPECT_THAT(well(run_epochs(folder_.file("shards"), "2", {})).output,
              HasSubstr("2 of 13 samples: 7 steps"));
  // Going on is a matter of steps.
  const std::string more = well(run_epochs(text, "2", {"--checkpoint", dir, "--resume"})).output;
  EXPECT_THAT(more, HasSubstr("step 6 of 10"));
  EXPECT_THAT(more, HasSubstr("--steps was 6 and is 10"));
  expect_refusal(run_epochs(text, "1", {"--checkpoint", dir, "--resume"}),
                 {"it is of step 10, and --epochs 1 are 5; give more"});
  expect_refusal(run_epochs(text, "1", {"--steps", "5"}), {"--epochs and --steps"});
  expect_refusal(run_epochs(text_, "1e300", {}), {"--epochs"});
}

// With data of its own an evaluation changes nothing of the training.
TEST_F(TrainGptData, EvaluationLeavesTheTrainingAlone) {
  const std::string other = folder_.make("other", std::string(2000, 'z'));
  run_well({"--data", text_, "--dropout", "0.1", "--weights", folder_.file("a")});
  run_well({"--data", text_, "--dropout", "0.1", "--weights", folder_.file("b"), "--evaluate-every", "2",
            "--evaluation-data", other});
  EXPECT_EQ(contents_of(folder_.file("a")), contents_of(folder_.file("b")));
  expect_refused({"--data", text_, "--evaluate-every", "2", "--evaluation-data", folder_.file("none")},
                 {"--evaluation-data", folder_.file("none")});
  expect_refused({"--data", text_, "--evaluate-every", "2", "--evaluation-share", "0.0001"},
                 {"--evaluation-share 0.0001", "bytes"});
}

// The bits of an evaluation do not depend on the memory, and no step depends on the evaluation.
TEST_F(TrainGptData, EvaluatesOnTheDeviceAsOnTheCpu) {
  for (const char* type : {"f32", "bf16"}) {
    const bool narrow = std::string(type) == "bf16";
    const auto evaluated = [&](const Words& more) {
      const std::string log = folder_.file("log");
      Words words = {"--data",  text_, "--type",          type, "--evaluate-every",     "3", "--log", log,
                     "--batch", "4",   "--micro-batches", "2",  "--evaluation-samples", "7"};
      words.insert(words.end(), more.begin(), more.end());
      const std::string told = run_well(words).output;
      std::vector<double> losses;
      for (const json& line : lines_of(log))
        losses.push_back(line.contains("evaluation") ? line.at("evaluation").at("loss") : line.at("loss"));
      std::filesystem::remove(log);
      const std::size_t peak = told.find(" bytes touched, ");
      const std::string touched = told.substr(told.rfind(' ', peak - 1), peak - told.rfind(' ', peak - 1));
      EXPECT_THAT(told, HasSubstr(touched + " bytes touched," + touched + " planned"));
      EXPECT_THAT(told,
                  HasSubstr(more.back() == "cpu" ? "on the CPU, in f32" : "evaluation    on the device"));
      return losses;
    };
    const std::vector<double> cpu = evaluated({"--evaluate-on", "cpu"});
    ASSERT_EQ(cpu.size(), 8U);
    const std::vector<double> all = evaluated({"--policy", "none", "--evaluate-on", "device"});
    EXPECT_EQ(evaluated({"--policy", "auto", "--device-memory", narrow ? "2200KiB" : "1100KiB",
                         "--evaluate-on", "device"}),
              all)
        << type;
    for (std::size_t line = 0; line < cpu.size(); ++line) {
      const bool evaluation = line == 3 || line == 7;
      if (evaluation)
        EXPECT_NEAR(all[line], cpu[line], narrow ? 2e-3 : 2e-6) << type;
      else
        EXPECT_EQ(all[line], cpu[line]) << type;
    }
  }
}

TEST_F(TrainGptData, EvaluatesShards) {
  const Words evaluated = {"--data", shard("a.bin", 200, 1), "--evaluate-every", "3"};
  expect_refused(evaluated, {"--evaluate-every", "--evaluation-data"});
  Words words = evaluated;
  words.insert(words.end(), {"--evaluation-data", shard("b.bin", 100, 5)});
  EXPECT_THAT(run_well(words).output, HasSubstr("over 96 tokens not trained on"));
}

TEST_F(TrainGptData, TheLogOfAResumedRunHasTheSameEvaluations) {
  const auto run_to = [&](const std::string& log, const Words& more) {
    Words words = {"--data", text_, "--evaluate-every", "2", "--log", folder_.file(log)};
    words.insert(words.end(), more.begin(), more.end());
    run_well(words);
    std::vector<json> evaluations;
    for (const json& line : lines_of(folder_.file(log))) {
      if (line.contains("evaluation")) evaluations.push_back(line);
    }
    for (json& line : evaluations) line.erase("seconds");
    return evaluations;
  };
  const std::vector<json> whole = run_to("whole", {});
  ASSERT_EQ(whole.size(), 3U);
  const std::string dir = folder_.file("checkpoints");
  run_to("log", {"--checkpoint", dir, "--checkpoint-every", "4"});
  std::filesystem::remove_all(list_checkpoints(dir).front().path);
  EXPECT_EQ(run_to("log", {"--checkpoint", dir, "--resume"}), whole);
  // Nothing is left to be done.
  EXPECT_EQ(run_to("log", {"--checkpoint", dir, "--resume"}), whole);
}

}  // namespace
}  // namespace stowage::samples
