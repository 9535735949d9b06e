// --optimizer-in-backward from end to end: the same bits in less host memory, what is refused, and a run that
// diverges.
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

class OptimizerInBackwardTraining : public ::testing::Test {
 protected:
  Words with(const char* type, const Words& more) const {
    Words words = {"--data",     text_, "--device",        "simulated", "--machine",        machine_,
                   "--type",     type,  "--layers",        "2",         "--width",          "128",
                   "--heads",    "2",   "--steps",         "6",         "--warmup",         "2",
                   "--sequence", "16",  "--batch",         "4",         "--link-bandwidth", "unthrottled",
                   "--clip",     "0",   "--device-memory", "2600KiB"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run(const Words& more) const { return run_program(STOWAGE_TRAIN_GPT, with("bf16", more)); }
  std::string weights_after(Words more) const {
    more.insert(more.end(), {"--weights", folder_.file("weights")});
    well(run(more));
    return contents_of(folder_.file("weights"));
  }
  // The smallest --host-memory, which a refusal tells.
  std::string least_host(Words more) const {
    more.insert(more.end(), {"--host-memory", "1000", "--plan-only"});
    const std::string told = run(more).errors;
    const std::size_t at = told.rfind("--host-memory ");
    return at == std::string::npos ? told : told.substr(at + 14, told.find_last_not_of('\n') - at - 13);
  }

  TemporaryFolder folder_;
  std::string text_ =
      folder_.make("text", std::string(4000, 'x') + "and some other letters. " + std::string(999, 'y'));
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

TEST_F(OptimizerInBackwardTraining, LeavesTheSameBitsInLessHostMemory) {
  const std::string whole = weights_after({});
  ASSERT_FALSE(whole.empty());
  EXPECT_TRUE(weights_after({"--optimizer-in-backward"}) == whole);
  const std::string least = least_host({"--optimizer-in-backward"});
  EXPECT_LT(std::stoull(least), std::stoull(least_host({})));
  const ProgramResult planned = well(run({"--optimizer-in-backward", "--host-memory", least, "--plan-only"}));
  EXPECT_THAT(planned.output, HasSubstr("on the host are made in backward, for good"));
  EXPECT_TRUE(weights_after({"--optimizer-in-backward", "--host-memory", least, "--threads", "1"}) == whole);
}

TEST_F(OptimizerInBackwardTraining, LeavesTheBitsOfOneDeviceOnTwo) {
  const Words groups{"--gradient-groups", "2", "--micro-batches", "2", "--optimizer-in-backward"};
  Words two = groups;
  two.insert(two.end(), {"--devices", "2"});
  EXPECT_TRUE(weights_after(two) == weights_after(groups));
}

// The checkpoints from before are whole, and the last of them goes on to what the run would have been.
TEST_F(OptimizerInBackwardTraining, EndsWhereItDivergesAndLeavesTheCheckpointAlone) {
  const std::string dir = folder_.file("checkpoints");
  const Words good{"--optimizer-in-backward", "--checkpoint", dir, "--checkpoint-every", "2", "--keep", "9"};
  Words bad = good;
  bad.insert(bad.end(), {"--learning-rate", "1e6", "--epsilon", "1e-30", "--steps", "40",
                         "--checkpoint-every", "100", "--schedule", "constant", "--resume"});
  const std::string whole = weights_after(good);
  std::filesystem::remove_all(list_checkpoints(dir).front().path);
  const std::vector<CheckpointName> before = list_checkpoints(dir);
  ASSERT_EQ(before.front().step, 4U);
  const ProgramResult ended = run(bad);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("the step was made in part"));
  EXPECT_THAT(ended.errors, HasSubstr("in place of --optimizer-in-backward"));
  EXPECT_THAT(ended.errors, HasSubstr("--resume " + dir));
  const std::vector<CheckpointName> after = list_checkpoints(dir);
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].path, before[i].path);
  Words again = good;
  again.push_back("--resume");
  EXPECT_TRUE(weights_after(again) == whole);
}

TEST_F(OptimizerInBackwardTraining, IsRefusedWhereAStepMayHaveToBeLeftOut) {
  const auto refuse = [&](const char* type, const Words& more, const char* words) {
    Words all = with(type, {"--optimizer-in-backward"});
    all.insert(all.end(), more.begin(), more.end());
    expect_refusal(run_program(STOWAGE_TRAIN_GPT, all), {"--optimizer-in-backward", words});
  };
  refuse("fp16", {}, "give --type bf16");
  refuse("bf16", {"--policy", "zero-offload"}, "--policy zero-offload updates behind backward");
  refuse("bf16", {"--speculate", "always"}, "--speculate always does nothing");
  expect_refusal(run_program(STOWAGE_TRAIN_GPT, {"--data", text_, "--optimizer-in-backward"}),
                 {"--optimizer-in-backward: gradients are clipped", "give --clip 0 (now 1)"});
  const auto refuse_plan = [&](const Words& more, const char* words) {
    Words all{"plan", "--gpt", "2x64", "--optimizer-in-backward"};
    all.insert(all.end(), more.begin(), more.end());
    expect_refusal(run_program(STOWAGE_PROGRAM, all), {words});
  };
  refuse_plan({"--type", "fp16"}, "in fp16 a step whose gradients overflow is left out");
  refuse_plan({"--policy", "none"}, "with the policy none");
  refuse_plan({"--speculate", "off"}, "--speculate off forbids");
}

}  // namespace
}  // namespace stowage::samples
