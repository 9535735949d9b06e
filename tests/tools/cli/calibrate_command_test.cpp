#include "tools/cli/calibrate_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/machine/sample_file.h"
#include "tests/support/chain_graph.h"
#include "tests/support/expect_refused.h"
#include "tests/tools/cli/run_stowage.h"
#include "tools/cli/plan_command.h"

namespace stowage {
namespace {

using test::Result;
using test::run_stowage;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CalibrateCommandTest : public ::testing::Test {
 protected:
  CalibrateCommandTest() {
    std::string pattern = ::testing::TempDir() + "stowage-calibrate-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = pattern;
  }
  ~CalibrateCommandTest() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  bool empty() const { return fs::is_empty(folder_); }

  // One line that says what is wrong, exit code 2, nothing written.
  void expect_refused(const std::string& arguments, const std::string& words) const {
    const Result result = run_stowage(arguments);
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(words));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
    EXPECT_TRUE(empty());
  }
  fs::path folder_;
};

TEST_F(CalibrateCommandTest, TheProgramMeasuresAndWritesAFileThatPlanReads) {
  const std::string machine = file("machine.json");
  const Result measured =
      run_stowage("calibrate --device simulated --quick --link 3GB/s --output " + machine);
  ASSERT_EQ(measured.code, 0) << measured.output;
  EXPECT_THAT(measured.output, HasSubstr("quick measurement, on the simulated device"));
  EXPECT_THAT(measured.output, HasSubstr("f32 products"));
  EXPECT_THAT(measured.output, HasSubstr("written       " + machine));
  const MachineFile read = read_machine_file(machine);
  EXPECT_EQ(read.backend, "simulated");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);

  std::ofstream(file("graph.json")) << to_json(testing::chain_graph());
  const Result planned = run_stowage("plan " + file("graph.json") + " --machine " + machine);
  EXPECT_EQ(planned.code, 0) << planned.output;
  EXPECT_THAT(planned.output, HasSubstr("machine       simulated on " + read.host));
}

TEST_F(CalibrateCommandTest, TheProgramMeasuresDevicesTogetherForPlansOfSeveral) {
  const std::string machine = file("machine.json");
  const Result measured =
      run_stowage("calibrate --device simulated --devices 2 --quick --link 3GB/s --output " + machine);
  ASSERT_EQ(measured.code, 0) << measured.output;
  EXPECT_THAT(measured.output, HasSubstr("on the simulated device, as asked, the first of 2"));
  EXPECT_THAT(measured.output, HasSubstr("devices       2, 2 at each host memory"));
  EXPECT_THAT(measured.output, HasSubstr("received     gather   exchange  GB/s"));
  const MachineFile read = read_machine_file(machine);
  ASSERT_TRUE(read.peers && read.peers->together);
  EXPECT_LT(read.peers->link.bytes_per_second, 3.1e9);
  const Result planned =
      run_stowage("plan --gpt 1x64 --sequence 16 --vocabulary 64 --batch 2 --devices 2 --machine " + machine);
  EXPECT_EQ(planned.code, 0) << planned.output;
  EXPECT_THAT(planned.output, HasSubstr("machine       2 x simulated on " + read.host));
}

TEST_F(CalibrateCommandTest, BadInputIsToldInOneLineWithCodeTwo) {
  const std::string output = " --output " + file("machine.json");
  expect_refused("calibrate --quick --device simulated --link fast" + output, "--link: \"fast\" is no rate");
  for (const char* devices : {"0", "65", "x"})
    expect_refused(std::string("calibrate --quick --device simulated --devices ") + devices + output,
                   "--devices: \"" + std::string(devices) + "\"");
  expect_refused("calibrate --quick --device toaster" + output, "device 'toaster'");
  expect_refused("calibrate --quick --device simulated --output " + file("none/machine.json"),
                 "none/machine.json");
  expect_refused("calibrate --quick --device simulated --output " + folder_.string(), "this is a directory");
}

TEST_F(CalibrateCommandTest, WithoutAnOutputItMeasuresTheMachineThatPlansCallHere) {
  const std::string cache = "XDG_CACHE_HOME=" + folder_.string() + " ";
  const std::string plan = "plan --gpt 1x64 --sequence 16 --vocabulary 64 --batch 2 --machine here";
  const Result before = run_stowage(plan, cache);
  EXPECT_EQ(before.code, 2);
  EXPECT_THAT(before.output,
              HasSubstr("--machine here: this machine has not been measured: run `stowage calibrate`, which "
                        "leaves " +
                        file("stowage/here.json")));
  const Result measured = run_stowage("calibrate --device simulated --quick", cache);
  ASSERT_EQ(measured.code, 0) << measured.output;
  EXPECT_THAT(measured.output,
              HasSubstr("written       " + file("stowage/here.json") + ", for --machine here"));
  const Result planned = run_stowage(plan, cache);
  EXPECT_EQ(planned.code, 0) << planned.output;
  EXPECT_THAT(planned.output,
              HasSubstr("machine       simulated on " + read_machine_file(file("stowage/here.json")).host));
  EXPECT_THAT(run_stowage("plan --machine list", cache).output, HasSubstr("\nhere          simulated on "));
}

TEST_F(CalibrateCommandTest, WithoutAPlaceForItsFileNothingIsMeasured) {
  expect_refused("calibrate --quick --device simulated --output ''", "--output");
  for (const char* nowhere : {"XDG_CACHE_HOME= HOME=", "XDG_CACHE_HOME=cache HOME=."}) {
    const Result result = run_stowage("calibrate --quick --device simulated", std::string(nowhere) + " ");
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.output, HasSubstr("set XDG_CACHE_HOME or HOME to an absolute path"));
  }
  const Result file_there = run_stowage("calibrate --quick --device simulated", "XDG_CACHE_HOME=/dev/null ");
  EXPECT_EQ(file_there.code, 2);
  EXPECT_THAT(file_there.output, HasSubstr("cannot write /dev/null/stowage/here.json: "));
}

TEST_F(CalibrateCommandTest, DescribesEveryMeasuredNumber) {
  const std::string text = describe(test::sample_file());
  for (const char* words :
       {"Card \"7\" (cuda), 140.00 GiB", "node, A CPU @ 2.00GHz, 64.00 GiB of memory\n",
        "2026-11-21T13:50:00Z, full", "55.00 GB/s after 10.4 us", "45.00 GB/s after 9.0 us",
        "48000.0 GFLOP/s", "8192 x  4096 x  4096     687194.8 GFLOP/s", "3900.0 GB/s", "2.50 us",
        "600.00 MiB", "150.0 GB/s with 16 threads", "12.0 GB/s with 1 thread\n",
        "bf16 codec      1250.0 GB/s encoded to 4 bits, 3250.0 GB/s decoded\n",
        "ops           2 kinds and sizes"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  EXPECT_THAT(text, HasSubstr("1.00 MiB     34.953"));
  EXPECT_THAT(text,
              HasSubstr("devices       8, 4 at each host memory\nfrom peers      400.00 GB/s after 20.0 us"));
  MachineFile measured = test::sample_file();
  measured.peers->gathers = {{1_MiB, 1e-3}};
  measured.peers->exchanges = {{1_MiB, 2e-3}};
  measured.peers->together = LinkRates{1e9, 2e9, 3e9, 4e9};
  EXPECT_THAT(describe(measured), HasSubstr("1.00 MiB      1.049      0.524\n"));
  EXPECT_THAT(describe(measured), HasSubstr("1.000 GB/s h2d, 2.000 d2h of each; both ways 3.000 and 4.000"));
}

TEST_F(CalibrateCommandTest, PlanTakesTheMachineOfTheGraphsType) {
  const Graph graph = testing::chain_graph();
  MachineFile slow = test::sample_file();
  slow.matrix = {{DataType::f32, 1e6, {}}, {DataType::bf16, 1e12, {}}};
  std::ofstream(file("graph.json")) << to_json(graph);
  std::ofstream(file("machine.json")) << to_json(slow);
  PlanCommand command;
  command.graph_file = file("graph.json");
  command.machine = file("machine.json");
  command.plan_file = file("plan.json");
  std::string output;
  EXPECT_EQ(run_plan_command(command, output), 0);
  EXPECT_THAT(output, HasSubstr("machine       8 x Card \"7\" on node, measured 2026-11-21T13:50:00Z"));
  std::ifstream plan(file("plan.json"));
  const std::string text((std::istreambuf_iterator<char>(plan)), std::istreambuf_iterator<char>());
  double flops = 0;
  for (const Op& op : graph.ops)
    if (op.phase != Phase::update) flops += op.cost.flops;
  EXPECT_GE(plan_from_json(text).predicted_step_seconds, flops / 1e6);

  slow.matrix = {{DataType::bf16, 1e12, {}}};
  std::ofstream(file("machine.json")) << to_json(slow);
  test::expect_refused([&] { run_plan_command(command, output); }, "has no rate for f32, only for bf16");
  command.machine = file("nowhere.json");
  test::expect_refused([&] { run_plan_command(command, output); }, "nowhere.json");
}

}  // namespace
}  // namespace stowage
