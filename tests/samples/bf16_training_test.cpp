// train_gpt and train_bert in bf16 on the simulated device, from end to end: what f32 has, bf16 has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "stowage/checkpoint.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

std::string documents() {
  std::string text;
  for (int document = 0; document < 40; ++document) {
    for (int i = 0; i < 6; ++i)
      text += "sentence " + std::to_string(i) + " of the document " + std::to_string(document) + ".\n";
    text += '\n';
  }
  return text;
}

// The parameter is the program.
class Bf16Training : public ::testing::TestWithParam<const char*> {
 protected:
  Words with(const Words& more) const {
    Words words = {"--data",          text_,  "--device",   "simulated", "--machine",        machine_,
                   "--type",          "bf16", "--steps",    "6",         "--warmup",         "2",
                   "--layers",        "2",    "--width",    "32",        "--heads",          "2",
                   "--dropout",       "0.1",  "--sequence", "16",        "--batch",          "4",
                   "--micro-batches", "2",    "--policy",   "none",      "--link-bandwidth", "unthrottled"};
    if (GetParam() == std::string(STOWAGE_TRAIN_BERT)) words.insert(words.end(), {"--vocabulary", "280"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run(const Words& more) const { return well(run_program(GetParam(), with(more))); }
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
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

TEST_P(Bf16Training, LeavesTheSameBitsInAnyMemoryBucketsAndThreads) {
  const std::string whole = weights_after({});
  ASSERT_FALSE(whole.empty());
  EXPECT_TRUE(same(whole, {"--threads", "1"}));
  EXPECT_TRUE(same(whole, {"--policy", "layer-stream"}));
  EXPECT_TRUE(same(whole, {"--policy", "auto", "--device-memory", minimum(), "--verify"}));
  EXPECT_TRUE(same(whole, {"--policy", "auto", "--bucket-size", "1000", "--threads", "3"}));
  EXPECT_FALSE(same(whole, {"--type", "f32"}));
}

TEST_P(Bf16Training, ResumesToTheSameBits) {
  const std::string dir = folder_.file("checkpoints");
  const std::string whole = weights_after({"--checkpoint", dir, "--checkpoint-every", "2", "--keep", "9"});
  for (const auto& checkpoint : list_checkpoints(dir))
    EXPECT_TRUE(same(whole, {"--resume", checkpoint.path, "--policy", "zero-offload"}));
}

INSTANTIATE_TEST_SUITE_P(Programs, Bf16Training, ::testing::Values(STOWAGE_TRAIN_GPT, STOWAGE_TRAIN_BERT),
                         [](const auto& program) {
                           return std::string(program.index == 0 ? "train_gpt" : "train_bert");
                         });

class Bf16Gpt : public Bf16Training {};

TEST_P(Bf16Gpt, IsWhatTheCheckpointWritesAndIsEvaluated) {
  const std::string dir = folder_.file("checkpoints");
  const std::string told = run({"--checkpoint", dir, "--sample", "20", "--evaluate-every", "3"}).output;
  EXPECT_THAT(told, HasSubstr("evaluat"));
  const std::string text =
      well(run_program(GetParam(), {"--generate", "\n", "--tokens", "20", "--checkpoint", dir})).output;
  EXPECT_FALSE(text.empty());
}

// As f32 with the master weights' 32 bits.
TEST_P(Bf16Gpt, ExportsItsMasterWeightsAndGoesOnFromThem) {
  const std::string out = folder_.file("out");
  run({"--export", out});
  const std::string again = folder_.file("again");
  Words words = {"--data", text_, "--device", "simulated", "--machine", machine_, "--type",   "bf16",
                 "--init", out,   "--batch",  "2",         "--steps",   "0",      "--export", again};
  well(run_program(GetParam(), words));
  const std::string weights = contents_of(out + "/model.safetensors");
  EXPECT_FALSE(weights.empty());
  EXPECT_TRUE(contents_of(again + "/model.safetensors") == weights);
}

INSTANTIATE_TEST_SUITE_P(Programs, Bf16Gpt, ::testing::Values(STOWAGE_TRAIN_GPT),
                         [](const auto&) { return std::string("train_gpt"); });

}  // namespace
}  // namespace stowage::samples
