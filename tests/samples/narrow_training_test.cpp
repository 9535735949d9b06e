// train_gpt and train_bert in bf16 and fp16 on the simulated device, from end to end: what f32 has, they
// have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stowage/checkpoint.h"
#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

struct Trained {
  const char *program, *type;
};

class NarrowTraining : public ::testing::TestWithParam<Trained> {
 protected:
  Words with(const Words& more) const {
    Words words = {"--data",           text_,        "--device",  "simulated",
                   "--machine",        machine_,     "--type",    GetParam().type,
                   "--steps",          "6",          "--warmup",  "2",
                   "--layers",         "2",          "--width",   "32",
                   "--heads",          "2",          "--dropout", "0.1",
                   "--sequence",       "16",         "--batch",   "4",
                   "--micro-batches",  "2",          "--policy",  "none",
                   "--link-bandwidth", "unthrottled"};
    if (GetParam().program == std::string(STOWAGE_TRAIN_BERT))
      words.insert(words.end(), {"--vocabulary", "280"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run(const Words& more) const { return well(run_program(GetParam().program, with(more))); }
  std::string weights_after(Words more) const {
    more.insert(more.end(), {"--weights", folder_.file("weights")});
    run(more);
    return contents_of(folder_.file("weights"));
  }
  bool same(const std::string& whole, const Words& more) const { return weights_after(more) == whole; }
  // The smallest --device-memory.
  std::string minimum() const {
    const std::string told = run({"--policy", "auto", "--plan-only"}).output;
    const std::size_t at = told.find('(', told.find("\nminimum"));
    return told.substr(at + 1, told.find(' ', at) - at - 1);
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", documents());
  std::string machine_ =
      folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16, DataType::f16}));
};

TEST_P(NarrowTraining, LeavesTheSameBitsInAnyMemoryBucketsAndThreads) {
  const std::string whole = weights_after({});
  ASSERT_FALSE(whole.empty());
  EXPECT_TRUE(same(whole, {"--threads", "1"}));
  EXPECT_TRUE(same(whole, {"--policy", "layer-stream"}));
  EXPECT_TRUE(same(whole, {"--policy", "auto", "--device-memory", minimum(), "--verify"}));
  EXPECT_TRUE(same(whole, {"--policy", "auto", "--bucket-size", "1000", "--threads", "3"}));
  EXPECT_FALSE(same(whole, {"--type", "f32"}));
}

TEST_P(NarrowTraining, ResumesToTheSameBits) {
  const std::string dir = folder_.file("checkpoints");
  const std::string whole = weights_after({"--checkpoint", dir, "--checkpoint-every", "2", "--keep", "9"});
  for (const auto& checkpoint : list_checkpoints(dir))
    EXPECT_TRUE(same(whole, {"--resume", checkpoint.path, "--policy", "zero-offload"}));
}

std::string name_of(const ::testing::TestParamInfo<Trained>& of) {
  return std::string(of.param.program == std::string(STOWAGE_TRAIN_GPT) ? "train_gpt_" : "train_bert_") +
         of.param.type;
}

INSTANTIATE_TEST_SUITE_P(Programs, NarrowTraining,
                         ::testing::Values(Trained{STOWAGE_TRAIN_GPT, "bf16"},
                                           Trained{STOWAGE_TRAIN_BERT, "bf16"},
                                           Trained{STOWAGE_TRAIN_GPT, "fp16"},
                                           Trained{STOWAGE_TRAIN_BERT, "fp16"}),
                         name_of);

class NarrowGpt : public NarrowTraining {};

TEST_P(NarrowGpt, IsWhatTheCheckpointWritesAndIsEvaluated) {
  const std::string dir = folder_.file("checkpoints");
  const std::string told = run({"--checkpoint", dir, "--sample", "20", "--evaluate-every", "3"}).output;
  EXPECT_THAT(told, HasSubstr("evaluat"));
  const std::string text =
      well(run_program(GetParam().program, {"--generate", "\n", "--tokens", "20", "--checkpoint", dir}))
          .output;
  EXPECT_FALSE(text.empty());
}

// As f32 with the master weights' 32 bits.
TEST_P(NarrowGpt, ExportsItsMasterWeightsAndGoesOnFromThem) {
  const std::string out = folder_.file("out");
  run({"--export", out});
  const std::string again = folder_.file("again");
  Words words = {"--data", text_, "--device", "simulated", "--machine", machine_, "--type",   GetParam().type,
                 "--init", out,   "--batch",  "2",         "--steps",   "0",      "--export", again};
  well(run_program(GetParam().program, words));
  const std::string weights = contents_of(out + "/model.safetensors");
  EXPECT_FALSE(weights.empty());
  EXPECT_TRUE(contents_of(again + "/model.safetensors") == weights);
}

INSTANTIATE_TEST_SUITE_P(Programs, NarrowGpt,
                         ::testing::Values(Trained{STOWAGE_TRAIN_GPT, "bf16"},
                                           Trained{STOWAGE_TRAIN_GPT, "fp16"}),
                         name_of);

// The first steps overflow on purpose: which they are, and the scale behind them, is the same in every way of
// running them, and the log tells it.
class ScaledTraining : public NarrowTraining {
 protected:
  static Words scaled(Words more) {
    more.insert(more.end(), {"--loss-scale", "16777216", "--steps", "12"});
    return more;
  }
  std::vector<nlohmann::json> logged(const Words& more) const {
    Words words = scaled(more);
    words.insert(words.end(), {"--log", folder_.file("log")});
    run(words);
    std::vector<nlohmann::json> lines;
    std::istringstream text(contents_of(folder_.file("log")));
    for (std::string line; std::getline(text, line);)
      if (line.find("\"evaluation\"") == std::string::npos) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
};

TEST_P(ScaledTraining, SkipsStepsThatOverflowAndTellsIt) {
  const auto lines = logged({});
  ASSERT_EQ(lines.size(), 12U);
  std::uint64_t skipped = 0;
  double scale = 0x1p24;
  for (const auto& line : lines) {
    EXPECT_EQ(line.at("loss_scale"), scale);
    if (line.at("grad_norm").is_null()) {
      ++skipped;
      scale /= 2;
    }
    EXPECT_EQ(line.at("skipped_steps"), skipped);
  }
  EXPECT_GT(skipped, 0U);
  EXPECT_FALSE(lines.back().at("grad_norm").is_null());
  EXPECT_THAT(run(scaled({})).output, HasSubstr("overflowed    " + std::to_string(skipped) + " of 12 steps"));
}

TEST_P(ScaledTraining, LeavesTheSameBitsHoweverItRuns) {
  const std::string whole = weights_after(scaled({}));
  EXPECT_TRUE(
      same(whole, scaled({"--policy", "auto", "--device-memory", minimum(), "--speculate", "always"})));
  EXPECT_TRUE(same(whole, scaled({"--policy", "zero-offload", "--speculate", "off", "--threads", "1"})));
}

// Also from amid the skipped steps: the scale is in the checkpoint, not what the flag says.
TEST_P(ScaledTraining, ResumesWithTheScaleOfTheCheckpoint) {
  const std::string dir = folder_.file("checkpoints");
  const std::string whole =
      weights_after(scaled({"--checkpoint", dir, "--checkpoint-every", "2", "--keep", "9"}));
  ASSERT_EQ(list_checkpoints(dir).size(), 6U);
  for (const auto& checkpoint : list_checkpoints(dir)) {
    ASSERT_TRUE(Checkpoint(checkpoint.path).state().loss_scale.has_value());
    EXPECT_TRUE(same(whole, {"--steps", "12", "--resume", checkpoint.path}));
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, ScaledTraining,
                         ::testing::Values(Trained{STOWAGE_TRAIN_GPT, "fp16"},
                                           Trained{STOWAGE_TRAIN_BERT, "fp16"}),
                         name_of);

}  // namespace
}  // namespace stowage::samples
