// --devices from end to end: as many as one likes leave the bits of one, and go on from each other's
// checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/checkpoint.h"
#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/draws.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

// The parameter is the program.
class DevicesTraining : public ::testing::TestWithParam<const char*> {
 protected:
  Words with(const char* devices, const Words& more) const {
    Words words = {"--data",     text_,  "--device",          "simulated", "--machine",        machine_,
                   "--layers",   "1",    "--width",           "32",        "--heads",          "2",
                   "--sequence", "16",   "--batch",           "8",         "--micro-batches",  "4",
                   "--steps",    "6",    "--gradient-groups", "4",         "--link-bandwidth", "unthrottled",
                   "--warmup",   "2",    "--dropout",         "0.1",       "--clip",           "2",
                   "--devices",  devices};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run(const char* devices, const Words& more) const {
    return run_program(GetParam(), with(devices, more));
  }
  std::string weights_after(const char* devices, Words more) const {
    more.insert(more.end(), {"--weights", folder_.file("weights")});
    well(run(devices, more));
    return contents_of(folder_.file("weights"));
  }
  // The smallest --device-memory.
  std::string minimum(const char* devices) const {
    const std::string told = well(run(devices, {"--plan-only"})).output;
    const std::size_t at = told.find('(', told.find("\nminimum"));
    return told.substr(at + 1, told.find(' ', at) - at - 1);
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", documents());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

TEST_P(DevicesTraining, LeavesTheBitsOfOneDevice) {
  const std::string alone = weights_after("1", {});
  ASSERT_FALSE(alone.empty());
  EXPECT_TRUE(weights_after("2", {"--device-memory", minimum("2")}) == alone);
  if (testing::sanitized) return;
  EXPECT_TRUE(weights_after("4", {"--threads", "1", "--device-memory", minimum("4")}) == alone);
  EXPECT_FALSE(weights_after("1", {"--gradient-groups", "1"}) == alone);
}

TEST_P(DevicesTraining, GoesOnFromTheCheckpointOfAnyNumberOfDevices) {
  const std::string dir = folder_.file("checkpoints");
  const std::string whole =
      weights_after("4", {"--checkpoint", dir, "--checkpoint-every", "2", "--keep", "9"});
  const auto checkpoints = list_checkpoints(dir);
  ASSERT_GE(checkpoints.size(), 3U);
  for (const char* devices : {"1", "2"}) {
    if (testing::sanitized && devices[0] == '2') continue;
    EXPECT_TRUE(weights_after(devices, {"--resume", checkpoints[1].path}) == whole) << devices;
  }
  // Another sum.
  expect_refusal(run("1", {"--gradient-groups", "1", "--resume", checkpoints[1].path}),
                 {"model.gradient_groups", "4"});
  if (testing::sanitized) return;
  const std::string alone = folder_.file("alone");
  weights_after("1", {"--checkpoint", alone, "--checkpoint-every", "4"});
  EXPECT_TRUE(weights_after("4", {"--resume", list_checkpoints(alone)[1].path}) == whole);
}

// What is refused is what the flag says, and what is advised is enough.
TEST_P(DevicesTraining, TellsWhatEachDeviceDid) {
  const std::string log = folder_.file("log"), page = folder_.file("page.html");
  const std::string told = well(run("2", {"--log", log, "--report", page})).output;
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(told, HasSubstr("\n  rank " + std::string(rank) + "   "));
    EXPECT_THAT(contents_of(log), HasSubstr("\n{\"rank\": " + std::string(rank) + ", \"steps\": 6, "));
    EXPECT_THAT(contents_of(page), HasSubstr("<tr><td>" + std::string(rank) + "</td>"));
  }
  EXPECT_THAT(contents_of(log), Not(HasSubstr("\"peer_bytes\": 0,")));
  EXPECT_THAT(well(run("1", {"--log", log})).output, Not(HasSubstr("rank 0")));
  EXPECT_THAT(contents_of(log), Not(HasSubstr("\"rank\"")));
}

TEST_P(DevicesTraining, AMachineOfFewerDevicesIsRefused) {
  expect_refusal(run("4", {"--machine", "2x-rtx4090", "--plan-only"}),
                 {"--devices 4: --machine 2x-rtx4090 is a machine of 2 devices; leave out --machine",
                  "or give a machine of 4 (stowage calibrate --devices 4)"});
}

TEST_P(DevicesTraining, HostMemoryIsThatOfAllDevices) {
  const Words least = {"--device-memory",           minimum("4"), "--checkpoint",
                       folder_.file("checkpoints"), "--steps",    "1"};
  Words words = least;
  words.insert(words.end(), {"--host-memory", "500000"});
  const std::string told = expect_refusal(run("4", words), {"--host-memory 500000", "give --host-memory"});
  const std::size_t at = told.find("give --host-memory ") + 19;
  const std::string enough = told.substr(at, told.find_first_not_of("0123456789", at) - at);
  words.back() = enough;
  well(run("4", words));
}

TEST_P(DevicesTraining, StopsAllDevicesWhereItIsInterrupted) {
  const std::string dir = folder_.file("checkpoints");
  const ProgramResult stopped =
      run_program(GetParam(), with("2", {"--steps", "100000", "--checkpoint", dir}), "loss");
  EXPECT_EQ(stopped.exit_code, 130) << stopped.errors;
  EXPECT_FALSE(list_checkpoints(dir).empty());
}

INSTANTIATE_TEST_SUITE_P(Programs, DevicesTraining, ::testing::Values(STOWAGE_TRAIN_GPT, STOWAGE_TRAIN_BERT),
                         [](const auto& program) {
                           const std::string path = program.param;
                           return path.substr(path.rfind('/') + 1);
                         });

TEST(Devices, ThatDoNotDivideTheWorkAreRefused) {
  const auto refusal = [](const Words& more, const std::vector<std::string>& parts) {
    Words words = {"--data", "text"};
    words.insert(words.end(), more.begin(), more.end());
    expect_refusal(run_program(STOWAGE_TRAIN_GPT, words), parts);
  };
  refusal({"--devices", "3"}, {"--devices 3", "power of two"});
  refusal({"--devices", "4", "--gradient-groups", "2", "--micro-batches", "2", "--batch", "8"},
          {"--devices 4", "--gradient-groups 2"});
  refusal({"--devices", "4", "--batch", "6"}, {"--devices 4", "--batch 6", "multiple of it"});
  refusal({"--devices", "0"}, {"--devices"});
  refusal({"--devices", "4", "--batch", "12", "--micro-batches", "6"}, {"--devices 4", "--micro-batches 6"});
}

}  // namespace
}  // namespace stowage::samples
