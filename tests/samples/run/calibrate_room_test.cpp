// What measuring takes of the host's memory, by the system's own count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "samples/run/calibrate_quick.h"
#include "samples/task/gpt_task.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Bytes of_status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return std::stoull(line.substr(name.size())) * 1_KiB;
  return 0;
}

const ModelConfig large{
    .layers = 12, .width = 768, .heads = 12, .vocabulary = 8000, .sequence = 1024, .batch = 8};

// Bytes of this process, at most, beside those from before.
Bytes taken_within(Bytes room) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the most so far becomes what is there now
  const Bytes before = of_status("VmRSS:");
  const HostLimit limit{"a group", room, "raise it"};
  const Calibration calibration = calibrate_quick(gpt_family, large, DataType::f32, {}, {}, {&limit, 1});
  EXPECT_GT(calibration.machine.flops_per_second, 0);
  EXPECT_FALSE(calibration.profile.empty());
  return of_status("VmHWM:") - before;
}

TEST(CalibrateQuick, KeepsToTheHostsRoom) {
  EXPECT_LE(taken_within(48_MiB), 48_MiB);
  EXPECT_GT(taken_within(1_GiB), 160_MiB) << "what it takes where it may";
}

TEST(CalibrateQuick, NamesTheLimitThatLeavesTooLittle) {
  const HostLimit limits[] = {{"the machine", 1_GiB, "end something"}, {"a group", 8_MiB, "raise it"}};
  try {
    calibrate_quick(gpt_family, large, DataType::f32, {}, {}, limits);
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.free_bytes(), 8_MiB);
    EXPECT_GT(error.requested_bytes(), 8_MiB);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("8.00 MiB are left of a group"), HasSubstr("raise it"),
                                    HasSubstr("--machine")));
  }
}

}  // namespace
}  // namespace stowage::samples
