#include "tools/cli/plan_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/cli/run_stowage.h"
#include "tools/choices/machine_choice.h"

namespace stowage {
namespace {

using test::Result;
using test::run_stowage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlanCommand parse_plan(const std::string& line) {
  CLI::App app;
  RawPlanCommand words;
  add_plan(app, words);
  app.parse("plan " + line, false);
  return parse(words);
}

TEST(PlanOptions, SayNothingByDefault) {
  const PlanCommand command = parse_plan("graph.json");
  EXPECT_EQ(command.graph_file, "graph.json");
  EXPECT_FALSE(command.device_memory);
  EXPECT_FALSE(command.host_memory);
  EXPECT_EQ(command.options.bucket_bytes, 0U);
  EXPECT_EQ(command.options.policy, Policy::automatic);
  EXPECT_FALSE(command.json);
  EXPECT_FALSE(command.max_model);
  EXPECT_EQ(command.machines, machines_folder());
}

TEST(PlanOptions, AreUnderstood) {
  const PlanCommand command = parse_plan(
      "--gpt 24x1024 --heads 8 --sequence 512 --batch 4 --micro-batches 2 --gradient-groups 2 --vocabulary "
      "256 --type bf16 "
      "--machine h200 "
      "--device-memory 6GiB --host-memory 48G --bucket-size 64MiB --policy none --sweep memory=3 --plan-json "
      "p.json --json");
  EXPECT_EQ(command.model.gpt, "24x1024");
  EXPECT_EQ(command.model.heads, "8");
  EXPECT_EQ(command.model.sequence, "512");
  EXPECT_EQ(command.model.batch, "4");
  EXPECT_EQ(command.model.micro_batches, "2");
  EXPECT_EQ(command.model.gradient_groups, "2");
  EXPECT_EQ(command.model.vocabulary, "256");
  EXPECT_EQ(command.model.type, "bf16");
  EXPECT_EQ(command.machine, "h200");
  EXPECT_EQ(command.device_memory, 6_GiB);
  EXPECT_EQ(command.host_memory, 48_GiB);
  EXPECT_EQ(command.options.bucket_bytes, 64_MiB);
  EXPECT_EQ(command.options.policy, Policy::none);
  for (const Policy policy : every_policy)
    EXPECT_EQ(parse_plan("--max-model --policy " + std::string(to_string(policy))).options.policy, policy);
  EXPECT_EQ(command.sweep, "memory=3");
  EXPECT_EQ(command.plan_file, "p.json");
  EXPECT_TRUE(command.json);
  EXPECT_EQ(parse_plan("--bert base --device-memory unlimited").device_memory, unlimited);
  EXPECT_EQ(parse_plan("--bert base --host-memory unlimited").host_memory, unlimited);
  EXPECT_TRUE(parse_plan("--max-model").max_model);
  EXPECT_EQ(parse_plan("--gpt 1.3b --devices 4").model.devices, "4");
  EXPECT_THAT(parse_plan("--compare a.json b.json").compare, ElementsAre("a.json", "b.json"));
}

TEST(PlanOptions, NameTheOptionThatIsWrong) {
  test::expect_refused([] { parse_plan("g --device-memory lots"); }, "--device-memory: \"lots\"");
  test::expect_refused([] { parse_plan("g --device-memory 99999999999999999999"); }, "--device-memory: ");
  test::expect_refused([] { parse_plan("g --host-memory -1"); }, "--host-memory: \"-1\"");
  test::expect_refused([] { parse_plan("g --bucket-size 0"); }, "--bucket-size: \"0\" is no bucket size");
}

// Of the program itself.
class PlanProgram : public ::testing::Test {
 protected:
  // One line that says what is wrong, exit code 2, nothing written.
  void expect_refused(const std::string& arguments, const std::string& words) const {
    const Result result = run_stowage("plan " + arguments + " --plan-json " + folder_.file("plan.json"));
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr("stowage: " + words));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
    EXPECT_EQ(folder_.entries(), 0U);
  }
  TemporaryFolder folder_;
};

TEST_F(PlanProgram, FitsWithCodeZeroAndDoesNotWithCodeTwo) {
  const std::string model = "plan --gpt 1x64 --sequence 16 --batch 2 --vocabulary 96 --machine h200";
  const Result fits = run_stowage(model + " --json");
  EXPECT_EQ(fits.code, 0) << fits.output;
  EXPECT_EQ(nlohmann::json::parse(fits.output)["feasible"], true);
  const Result none = run_stowage(model + " --device-memory 600MiB --json");
  EXPECT_EQ(none.code, 2) << none.output;
  EXPECT_EQ(nlohmann::json::parse(none.output)["feasible"], false);
}

TEST_F(PlanProgram, ListsItsMachines) {
  const Result result = run_stowage("plan --machine list");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, list_machines(machines_folder()));
}

TEST_F(PlanProgram, RefusesHostileSpecsInOneLine) {
  expect_refused("--gpt 24x", "--gpt: \"24x\" is no model");
  expect_refused("--gpt 0x0", "--gpt 0x0: layers");
  expect_refused("--gpt 99999999999x1", "--gpt 99999999999x1: layers");
  expect_refused("--bert huge", "--bert: \"huge\" is no model");
  expect_refused("--gpt 1x64 --batch 99999999999", "--batch: \"99999999999\"");
  expect_refused("--gpt 1x64 --devices 3 --machine 8x-h200", "--devices 3 is no power of two");
  expect_refused("--gpt 1x64 --devices 2 --machine h200", "2 devices of the machine of NVIDIA H200");
  expect_refused("--gpt 1x64 --machine h300", "--machine: there is no machine \"h300\"");
  expect_refused("--gpt 1x64 --device-memory lots", "--device-memory: \"lots\"");
  expect_refused("", "nothing to plan");
}

}  // namespace
}  // namespace stowage
