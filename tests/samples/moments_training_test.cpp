// --moments from end to end: the same bits in any memory, resumed runs, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/checkpoint.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using Words = std::vector<std::string>;

// The parameter is what --moments takes.
class MomentsTraining : public ::testing::TestWithParam<const char*> {
 protected:
  // The model on the device, without a number of steps.
  Words sized(const Words& more) const {
    Words words = {"--data",           text_,        "--device",   "simulated", "--machine", machine_,
                   "--type",           "bf16",       "--layers",   "2",         "--width",   "32",
                   "--heads",          "2",          "--sequence", "16",        "--batch",   "4",
                   "--link-bandwidth", "unthrottled"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words with(const char* moments, const Words& more) const {
    Words words = sized({"--steps", "6", "--warmup", "2", "--moments", moments});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run(const char* moments, const Words& more) const {
    return run_program(STOWAGE_TRAIN_GPT, with(moments, more));
  }
  std::string weights_after(const char* moments, Words more) const {
    more.insert(more.end(), {"--weights", folder_.file("weights")});
    well(run(moments, more));
    return contents_of(folder_.file("weights"));
  }
  bool same(const std::string& whole, const Words& more) const {
    return weights_after(GetParam(), more) == whole;
  }
  // The smallest --device-memory.
  std::string minimum() const {
    const std::string told = well(run(GetParam(), {"--plan-only"})).output;
    const std::size_t at = told.find('(', told.find("\nminimum"));
    return told.substr(at + 1, told.find(' ', at) - at - 1);
  }

  TemporaryFolder folder_;
  std::string text_ =
      folder_.make("text", std::string(4000, 'x') + "and some other letters. " + std::string(999, 'y'));
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

TEST_P(MomentsTraining, LeavesTheSameBitsInAnyMemoryBucketsAndThreads) {
  const std::string whole = weights_after(GetParam(), {"--policy", "none"});
  ASSERT_FALSE(whole.empty());
  EXPECT_TRUE(same(whole, {"--threads", "1"}));
  EXPECT_TRUE(same(whole, {"--policy", "zero-offload"}));
  EXPECT_TRUE(same(whole, {"--device-memory", minimum(), "--speculate", "always"}));
  EXPECT_TRUE(same(whole, {"--device-memory", minimum(), "--bucket-size", "1000", "--speculate", "off"}));
  EXPECT_FALSE(weights_after("f32", {}) == whole);
}

TEST_P(MomentsTraining, ResumesToTheSameBitsAndWithNoOtherMoments) {
  const std::string dir = folder_.file("checkpoints");
  const std::string whole =
      weights_after(GetParam(), {"--checkpoint", dir, "--checkpoint-every", "2", "--keep", "9"});
  const auto checkpoints = list_checkpoints(dir);
  ASSERT_GE(checkpoints.size(), 3U);
  for (const auto& checkpoint : checkpoints) EXPECT_TRUE(same(whole, {"--resume", checkpoint.path}));
  well(run_program(STOWAGE_TRAIN_GPT, {"--generate", "x", "--tokens", "3", "--checkpoint", dir}));
  for (const char* other : {"f32", "bf16", "8bit"}) {
    if (other == std::string(GetParam())) continue;
    expect_refusal(run(other, {"--resume", checkpoints.front().path}), {"optimizer.moments", GetParam()});
  }
}

// A checkpoint says of which type its moments are.
TEST_P(MomentsTraining, IsExportedFromACheckpointWithoutNamingTheMoments) {
  const std::string dir = folder_.file("checkpoints"), out = folder_.file("out"),
                    again = folder_.file("again");
  well(run(GetParam(), {"--checkpoint", dir, "--export", out}));
  const auto checkpoints = list_checkpoints(dir);
  ASSERT_FALSE(checkpoints.empty());
  well(run_program(STOWAGE_TRAIN_GPT,
                   sized({"--steps", "0", "--resume", checkpoints.front().path, "--export", again})));
  ASSERT_FALSE(contents_of(out + "/model.safetensors").empty());
  for (const char* file : {"/model.safetensors", "/config.json"})
    EXPECT_TRUE(contents_of(again + file) == contents_of(out + file)) << file;
}

INSTANTIATE_TEST_SUITE_P(Types, MomentsTraining, ::testing::Values("bf16", "8bit"),
                         [](const auto& type) { return std::string(type.param); });

TEST(Moments, OfAnotherTypeAreRefused) {
  expect_refusal(run_program(STOWAGE_TRAIN_GPT, {"--data", "text", "--moments", "4bit"}),
                 {"--moments", "4bit"});
}

}  // namespace
}  // namespace stowage::samples
