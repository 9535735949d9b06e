// train_gpt --checkpoint and --resume from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stowage/checkpoint.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

class TrainGptCheckpoint : public ::testing::Test {
 protected:
  Words with(const Words& more) const {
    // A policy that plans at once.
    Words words = {"--data",           text_,         "--device",  "simulated",
                   "--machine",        machine_,      "--policy",  "none",
                   "--link-bandwidth", "unthrottled", "--layers",  "1",
                   "--width",          "16",          "--heads",   "2",
                   "--sequence",       "8",           "--batch",   "4",
                   "--micro-batches",  "2",           "--dropout", "0.1",
                   "--warmup",         "2",           "--steps",   "6"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run(const Words& more) const { return run_train_gpt(with(more)); }
  ProgramResult run_well(const Words& more) const { return well(run(more)); }
  void expect_refused(const Words& more, const Words& parts) const { expect_refusal(run(more), parts); }
  // The weights that six steps in one go end in.
  std::string uninterrupted() const {
    run_well({"--weights", folder_.file("whole")});
    return contents_of(folder_.file("whole"));
  }
  std::string checkpoint(int step) const { return dir_ + "/step-00000000000" + std::to_string(step); }
  // The contents of all files of a folder, by name.
  std::map<std::string, std::string> files_of(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file(name)))
      files[entry.path().filename().string()] = contents_of(entry.path().string());
    return files;
  }
  void damage(const std::string& path) const {
    std::string contents = contents_of(path);
    contents[contents.size() / 2] = static_cast<char>(contents[contents.size() / 2] ^ 1);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", std::string(500, 'a') + std::string(500, 'b'));
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32}));
  std::string dir_ = folder_.file("checkpoints");
};

TEST_F(TrainGptCheckpoint, AResumedRunEndsInTheSameBytesUnderAnotherPlan) {
  const std::string expected = uninterrupted();
  run_well({"--checkpoint", dir_, "--checkpoint-every", "2", "--keep", "9", "--weights", folder_.file("a")});
  EXPECT_EQ(contents_of(folder_.file("a")), expected);
  // Streamed, in little memory, in other buckets, with one thread; none of it as it was saved.
  const std::vector<Words> others = {
      {"--policy", "layer-stream"},
      {"--policy", "auto", "--device-memory", "1120KiB", "--bucket-size", "1000", "--threads", "1"},
      {"--policy", "zero-offload", "--checkpoint", folder_.file("other"), "--checkpoint-blocking"}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    Words words = {"--resume", checkpoint(2), "--weights", folder_.file("b")};
    words.insert(words.end(), others[i].begin(), others[i].end());
    EXPECT_THAT(run_well(words).output, HasSubstr(checkpoint(2) + ": step 2 of 6"));
    EXPECT_EQ(contents_of(folder_.file("b")), expected) << i;
  }
}

TEST_F(TrainGptCheckpoint, KeepsTheNewestAndGoesOnFromIt) {
  const std::string expected = uninterrupted();
  const Words words = {"--checkpoint", dir_, "--checkpoint-every", "1", "--keep", "2", "--resume"};
  EXPECT_THAT(run_well(words).output, HasSubstr("no checkpoint in " + dir_ + " yet"));
  EXPECT_FALSE(std::filesystem::exists(checkpoint(4)));
  std::filesystem::remove_all(checkpoint(6));
  Words again = words;
  again.insert(again.end(), {"--weights", folder_.file("a")});
  EXPECT_THAT(run_well(again).output, HasSubstr(checkpoint(5) + ": step 5 of 6"));
  EXPECT_EQ(contents_of(folder_.file("a")), expected);
  // Nothing is left to do but to write what is asked for.
  again.back() = folder_.file("b");
  EXPECT_THAT(run_well(again).output, HasSubstr(checkpoint(6) + ": step 6 of 6"));
  EXPECT_EQ(contents_of(folder_.file("b")), expected);
}

// A rate at which a later step is worse than an earlier one; resumed, the run knows the best so far.
TEST_F(TrainGptCheckpoint, TheBestIsKeptBesideTheNewest) {
  const std::string log = folder_.file("log");
  const auto losses = [&] {  // by step, and whether each was called the best
    std::map<std::uint64_t, std::pair<double, bool>> result;
    std::istringstream lines(contents_of(log));
    for (std::string line; std::getline(lines, line);) {
      const auto read = nlohmann::json::parse(line);
      if (read.contains("evaluation"))
        result[read.at("step")] = {read.at("evaluation").at("loss"), read.at("best")};
    }
    return result;
  };
  const auto check = [&](std::uint64_t last) {
    const auto measured = losses();
    EXPECT_EQ(measured.size(), last);
    double least = std::numeric_limits<double>::infinity();
    std::uint64_t best = 0;
    for (const auto& [step, loss] : measured) {
      EXPECT_EQ(loss.second, loss.first < least) << step;
      if (loss.first < least) best = step;
      least = std::min(least, loss.first);
    }
    const auto kept = find_best_checkpoint(dir_);
    ASSERT_TRUE(kept);
    EXPECT_EQ(kept->step, best);
    EXPECT_EQ(kept->score, least);
    EXPECT_LT(best, last);  // or else the newest would do
    EXPECT_EQ(list_checkpoints(dir_).size(), 2U);
  };
  const Words words = {"--checkpoint",
                       dir_,
                       "--keep",
                       "1",
                       "--keep-best",
                       "--evaluate-every",
                       "1",
                       "--log",
                       log,
                       "--learning-rate",
                       "3",
                       "--schedule",
                       "constant",
                       "--warmup",
                       "0",
                       "--resume"};
  const std::string output = run_well(words).output;
  EXPECT_THAT(output, HasSubstr("; the best so far\n"));
  EXPECT_THAT(output, HasSubstr("the last 1 and the best kept"));
  check(6);
  Words longer = words;
  longer.insert(longer.end(), {"--steps", "12"});
  EXPECT_THAT(run_well(longer).output, HasSubstr("best so far   " + dir_ + "/best: loss "));
  check(12);
  // It is a checkpoint as any other.
  longer.insert(longer.end(), {"--resume", dir_ + "/best", "--weights", folder_.file("w")});
  run_well(longer);
  EXPECT_FALSE(contents_of(folder_.file("w")).empty());
}

TEST_F(TrainGptCheckpoint, TheLogGoesOn) {
  const std::string log = folder_.file("log");
  const Words words = {"--checkpoint", dir_, "--checkpoint-every", "4", "--resume", "--log", log};
  run_well(words);
  std::filesystem::remove_all(checkpoint(6));
  run_well(words);
  const std::string lines = contents_of(log);
  std::size_t at = 0;
  for (int step = 1; step <= 6; ++step) {
    const std::string begin = "{\"step\": " + std::to_string(step) + ",";
    EXPECT_EQ(lines.substr(at, begin.size()), begin);
    at = lines.find('\n', at) + 1;
  }
  EXPECT_EQ(at, lines.size());
}

TEST_F(TrainGptCheckpoint, BytesAndTimeAreToldBefore) {
  const std::string output = run_well({"--checkpoint", dir_}).output;
  const std::string told =
      "              each " + exact(checkpoint_disk_bytes(Checkpoint(checkpoint(6)).state())) + ", about ";
  EXPECT_THAT(output, HasSubstr(told));
  EXPECT_LT(output.find(told), output.find("step 1/6"));
  EXPECT_THAT(output, ContainsRegex(" MB/s, measured by writing [0-9.]+ KiB there\n"));
  EXPECT_THAT(output, HasSubstr("\ncheckpoint    the first, of step 6, was written in "));
  EXPECT_THAT(run_well({"--checkpoint", dir_, "--resume"}).output, Not(HasSubstr("about ")));  // none is made
}

// Files are copied from the checkpoint's: no device is opened, and none is measured.
TEST_F(TrainGptCheckpoint, ExportsWithoutADevice) {
  for (const Words& type : {Words{}, Words{"--type", "bf16"}}) {
    std::filesystem::remove_all(dir_);
    const auto of_type = [&](Words words) {
      words.insert(words.end(), type.begin(), type.end());
      return words;
    };
    const std::string name = type.empty() ? "f32" : "bf16";
    const Words trained = {"--checkpoint", dir_,
                           "--machine",    "",
                           "--export",     folder_.file(name + "trained"),
                           "--weights",    folder_.file(name + "weights")};
    run_well(of_type(trained));
    const Words copied = {"--steps",   "0",
                          "--resume",  checkpoint(6),
                          "--device",  "cuda:7",
                          "--machine", "none such",
                          "--export",  folder_.file(name + "copied"),
                          "--weights", folder_.file(name + "copied weights")};
    const std::string output = run_well(of_type(copied)).output;
    EXPECT_THAT(output, HasSubstr(checkpoint(6) + ": step 6; nothing is trained\n"));
    EXPECT_THAT(output, Not(HasSubstr("plan ")));
    EXPECT_EQ(files_of(name + "trained"), files_of(name + "copied"));
    EXPECT_EQ(files_of(name + "copied").count("model.safetensors"), 1U);
    EXPECT_TRUE(contents_of(folder_.file(name + "weights")) ==
                contents_of(folder_.file(name + "copied weights")));
  }
}

// The model is that of the checkpoint: no flag says its sizes, dropout or type.
TEST_F(TrainGptCheckpoint, ExportsByTheCheckpointAlone) {
  run_well({"--checkpoint", dir_, "--machine", "", "--type", "bf16", "--export", folder_.file("trained")});
  for (const Words& from : {Words{"--resume", checkpoint(6)}, Words{"--checkpoint", dir_, "--resume"}}) {
    Words words = {"--steps", "0", "--export", folder_.file("copied")};
    words.insert(words.end(), from.begin(), from.end());
    well(run_train_gpt(words));
    EXPECT_EQ(files_of("trained"), files_of("copied"));
    std::filesystem::remove_all(folder_.file("copied"));
  }
  const Words none = {"--steps", "0", "--export", folder_.file("none"), "--resume"};
  const auto refuse = [&](const Words& more, const Words& parts) {
    Words words = none;
    words.insert(words.end(), more.begin(), more.end());
    expect_refusal(run_train_gpt(words), parts);
  };
  refuse({dir_},
         {"--resume " + dir_ + ": this is a folder of checkpoints", "such as --resume " + checkpoint(6)});
  refuse({folder_.file("nowhere")}, {"--resume " + folder_.file("nowhere")});
  refuse({"--checkpoint", folder_.file("empty")}, {"empty: there is no checkpoint in it"});
  refuse({checkpoint(6), "--evaluate-every", "1"}, {"--data FILE is missing"});
  EXPECT_FALSE(std::filesystem::exists(folder_.file("none")));
}

TEST_F(TrainGptCheckpoint, AnInterruptSaves) {
  const std::string expected = uninterrupted();
  const ProgramResult stopped = run_train_gpt(
      with({"--link-bandwidth", "20KB/s", "--policy", "layer-stream", "--checkpoint", dir_}), "step 1/6");
  EXPECT_EQ(stopped.exit_code, 130) << stopped.errors;
  ASSERT_EQ(list_checkpoints(dir_).size(), 1U);
  EXPECT_LT(list_checkpoints(dir_).front().step, 6U);
  run_well({"--checkpoint", dir_, "--resume", "--weights", folder_.file("a")});
  EXPECT_EQ(contents_of(folder_.file("a")), expected);
}

TEST_F(TrainGptCheckpoint, ADamagedOneIsRefusedAndTheOneBeforeOffered) {
  run_well({"--checkpoint", dir_, "--checkpoint-every", "3"});
  damage(checkpoint(6) + "/tensors.bin");
  expect_refused({"--checkpoint", dir_, "--resume"},
                 {"--resume " + checkpoint(6) + "/tensors.bin: the bytes of tensor \"",
                  "give --resume " + checkpoint(3) + " to go on"});
  damage(checkpoint(6) + "/state.json");
  expect_refused({"--resume=" + checkpoint(6)}, {"--resume " + checkpoint(6) + "/state.json: 'checksum'"});
  run_well({"--checkpoint", dir_, "--resume", checkpoint(3)});
  EXPECT_EQ(Checkpoint(checkpoint(6)).state().step, 6U);
}

TEST_F(TrainGptCheckpoint, AnotherRunsCheckpointIsRefused) {
  run_well({"--checkpoint", dir_});
  const auto refused = [&](const Words& with, const std::string& field) {
    Words words = {"--resume", checkpoint(6)};
    words.insert(words.end(), with.begin(), with.end());
    expect_refused(words, {"--resume " + checkpoint(6) + "/state.json: '" + field + "' is "});
  };
  refused({"--width", "32"}, "configuration.model.width");
  refused({"--batch", "6"}, "configuration.model.batch");
  refused({"--warmup", "3"}, "configuration.training.warmup");
  refused({"--seed", "2"}, "configuration.training.seed");
  refused({"--data", folder_.make("other", std::string(1000, 'a'))}, "configuration.data.text");
  expect_refused({"--resume", checkpoint(6), "--steps", "5"}, {"it is of step 6, and --steps is 5"});
  EXPECT_THAT(run_well({"--resume", checkpoint(6), "--steps", "7"}).output,
              HasSubstr("--steps was 6 and is 7: from here on other learning rates"));
}

TEST_F(TrainGptCheckpoint, MoreStepsAtAConstantRateHaveTheBitsOfOneRun) {
  run_well({"--checkpoint", dir_, "--schedule", "constant"});
  const std::string output =
      run_well({"--resume", checkpoint(6), "--schedule", "constant", "--steps", "7"}).output;
  EXPECT_THAT(output, HasSubstr("--steps was 6 and is 7\n"));
}

// Given, they may be others; left out, they would be changed unasked.
TEST_F(TrainGptCheckpoint, GoesOnWithAnotherRateOrClipWhereThatIsAsked) {
  run_well({"--checkpoint", dir_, "--checkpoint-every", "3", "--learning-rate", "0.5", "--clip", "2"});
  expect_refused({"--resume", checkpoint(3), "--clip", "2"},
                 {"'configuration.training.learning_rate' is \"0.5\", and that of this run is \"0.001\""});
  expect_refused({"--resume", checkpoint(3), "--learning-rate", "0.5"},
                 {"'configuration.optimizer.clip' is "});
  const std::string output =
      run_well({"--resume", checkpoint(3), "--learning-rate", "0.25", "--clip", "1", "--schedule", "linear"})
          .output;
  EXPECT_THAT(output, HasSubstr("--learning-rate was 0.5 and is 0.25: from here on other learning rates"));
  EXPECT_THAT(output, HasSubstr("--schedule was cosine and is linear: from here on other learning rates"));
  EXPECT_THAT(output, HasSubstr("--clip was 2 and is 1: from here on other bits"));
}

// The masks of dropout stay; the order of sums does not.
TEST_F(TrainGptCheckpoint, GoesOnInOtherMicroBatchesWhereThatIsAsked) {
  run_well({"--checkpoint", dir_, "--checkpoint-every", "3"});
  EXPECT_THAT(
      run_well({"--resume", checkpoint(3), "--micro-batches", "4"}).output,
      HasSubstr("--micro-batches was 2 and is 4: from here on sums in another order, and other bits"));
  const auto without = [&](const std::string& flag) {
    Words words = with({"--resume", checkpoint(3)});
    const auto at = std::find(words.begin(), words.end(), flag);
    words.erase(at, at + 2);
    return words;
  };
  expect_refusal(run_train_gpt(without("--micro-batches")),
                 {"'configuration.model.micro_batches' is \"2\", and that of this run is \"1\""});
}

TEST_F(TrainGptCheckpoint, GoesOnInItsOwnGradientGroupsAlone) {
  run_well({"--checkpoint", dir_, "--checkpoint-every", "3", "--gradient-groups", "2"});
  EXPECT_THAT(run_well({"--resume", checkpoint(3), "--gradient-groups", "2"}).output,
              HasSubstr("2 micro-batches in 2 gradient groups, "));
  expect_refusal(run_train_gpt(with({"--resume", checkpoint(3)})),
                 {"'configuration.model.gradient_groups' is \"2\", and that of this run is \"1\""});
}

TEST_F(TrainGptCheckpoint, GoesOnWithAnotherOptimizerWhereThatIsAsked) {
  run_well({"--checkpoint", dir_, "--checkpoint-every", "3", "--beta1", "0.8", "--beta2", "0.9", "--epsilon",
            "1e-6"});
  expect_refused({"--resume", checkpoint(3)},
                 {"'configuration.optimizer.beta1' is \"0.8\", and that of this run is \"0.9\"",
                  "(others too: \"optimizer.beta2\", \"optimizer.epsilon\")"});
  const std::string output =
      run_well({"--resume", checkpoint(3), "--beta1", "0.7", "--beta2", "0.9", "--epsilon", "1e-7"}).output;
  EXPECT_THAT(output, HasSubstr("--beta1 was 0.8 and is 0.7: from here on other bits"));
  EXPECT_THAT(output, HasSubstr("--epsilon was 1e-06 and is 1e-07: from here on other bits"));
  EXPECT_EQ(output.find("--beta2 was"), std::string::npos);
}

TEST_F(TrainGptCheckpoint, ADifferenceIsToldWithAllOthers) {
  run_well({"--checkpoint", dir_});
  expect_refused({"--resume", checkpoint(6), "--width", "32", "--seed", "2"},
                 {"'configuration.model.width' is \"16\"", "(others too: \"training.seed\")"});
  // The folder of checkpoints is not one of them.
  const std::string remedy = "such as --resume " + checkpoint(6) + ", the newest, or --checkpoint " + dir_;
  expect_refused({"--resume", dir_}, {"--resume " + dir_ + ": this is a folder of checkpoints", remedy});
  expect_refusal(run_train_gpt({"--generate", "x", "--resume", dir_}), {remedy});
}

// A step that is not finite is not made and not logged; the checkpoints are those of the steps before.
TEST_F(TrainGptCheckpoint, ADivergedRunSaysWhereAndWhereToGoOnFrom) {
  const std::string log = folder_.file("log");
  const Words diverging = {"--learning-rate", "1e6", "--steps", "40", "--log", log};
  Words words = diverging;
  words.insert(words.end(), {"--checkpoint", dir_, "--checkpoint-every", "1", "--keep", "9"});
  const ProgramResult result = run(words);
  EXPECT_EQ(result.exit_code, 1);
  const auto saved = list_checkpoints(dir_);
  ASSERT_GT(saved.size(), 1U);
  EXPECT_EQ(open_newest_checkpoint(dir_)->state().step, saved.front().step);
  const std::string lines = contents_of(log);
  EXPECT_EQ(static_cast<std::uint64_t>(std::count(lines.begin(), lines.end(), '\n')), saved.front().step);
  for (const std::string& part :
       {"train_gpt: step " + std::to_string(saved.front().step + 1) + ": loss NaN, gradient norm NaN: '",
        std::string("h.0.attn' (kernel 'attention') made it of finite values"),
        std::string("lower --learning-rate (now 1000000), or --clip (now 1)"),
        "go on from before with --resume " + saved[1].path + ", or an earlier one"})
    EXPECT_THAT(result.errors, HasSubstr(part));

  Words without = diverging;
  without.insert(without.end(), {"--clip", "0"});
  EXPECT_THAT(run(without).errors,
              HasSubstr("or clip gradients with --clip 1, and begin again: there is no"));
  // Resumed from elsewhere: that one is good.
  words = diverging;
  words.insert(words.end(), {"--resume", checkpoint(1)});
  EXPECT_THAT(run(words).errors, HasSubstr("with --resume " + checkpoint(1) + ", or"));
}

TEST_F(TrainGptCheckpoint, FlagsThatDoNotGoTogether) {
  expect_refused({"--resume"}, {"--resume without a path takes the newest checkpoint of --checkpoint DIR"});
  expect_refused({"--checkpoint", text_}, {"--checkpoint " + text_ + ": "});
  expect_refused({"--checkpoint", dir_, "--keep", "0"}, {"--keep"});
  expect_refused({"--checkpoint", dir_, "--host-memory", "1KiB"},
                 {"--host-memory 1.00 KiB", "--checkpoint-blocking"});
  std::filesystem::remove_all(dir_);
  run_well({"--checkpoint", dir_, "--plan-only"});
  EXPECT_FALSE(std::filesystem::exists(dir_));
  run_well({"--checkpoint", dir_});
  expect_refused({"--checkpoint", dir_}, {"the newest of step 6; add --resume"});
}

// As on a full disk: no file becomes longer than a page.
TEST_F(TrainGptCheckpoint, WhatCannotBeSavedIsToldAndTheTrainingGoesOn) {
  run_well({"--checkpoint", dir_, "--checkpoint-every", "2"});
  std::filesystem::remove_all(checkpoint(4));
  std::filesystem::remove_all(checkpoint(6));
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit page{4096, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &page);
  const ProgramResult result =
      run({"--checkpoint", dir_, "--checkpoint-every", "2", "--keep", "1", "--resume"});
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("train_gpt: warning: checkpoint of step 4: " + dir_));
  EXPECT_THAT(result.errors, HasSubstr("train_gpt: warning: checkpoint of step 6: " + dir_));
  EXPECT_THAT(result.errors, HasSubstr("train_gpt: --checkpoint " + dir_ + ": the run is done, but"));
  EXPECT_THAT(result.output, HasSubstr("step 6/6"));
  EXPECT_EQ(open_newest_checkpoint(dir_)->state().step, 2U);
}

}  // namespace
}  // namespace stowage::samples
