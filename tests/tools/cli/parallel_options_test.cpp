#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/cli/run_stowage.h"
#include "tools/cli/parallel_command.h"

namespace stowage {
namespace {

using test::Result;
using test::run_stowage;
using ::testing::HasSubstr;

ParallelCommand parse_parallel(const std::string& line) {
  CLI::App app;
  RawParallelOptions words;
  add_parallel(app, words);
  app.parse("parallel " + line, false);
  return parse(words);
}

TEST(ParallelOptions, SayLittleByDefault) {
  const ParallelCommand command = parse_parallel("--costs x.json");
  EXPECT_EQ(command.costs_file, "x.json");
  EXPECT_FALSE(command.devices);
  EXPECT_FALSE(command.memory);
  EXPECT_FALSE(command.objective);
  EXPECT_FALSE(command.most_work);
  EXPECT_FALSE(command.nodes);
  EXPECT_EQ(command.highest, Rung::plans);
  EXPECT_FALSE(command.json);
  EXPECT_EQ(command.trace_file, "");
}

TEST(ParallelOptions, AreUnderstood) {
  const ParallelCommand command = parse_parallel(
      "--costs x.json --devices 8 --memory 40GiB --objective largest-stage --limit 1000 --json --trace "
      "t.json");
  EXPECT_EQ(command.devices, 8);
  EXPECT_EQ(command.memory, 40_GiB);
  EXPECT_EQ(command.objective, ParallelObjective::largest_stage);
  EXPECT_EQ(command.most_work, 1000U);
  EXPECT_TRUE(command.json);
  EXPECT_EQ(command.trace_file, "t.json");
  const ParallelCommand of_model = parse_parallel(
      "--gpt 13b --batch 8 --machine 8x-h200 --nodes 2 --device-memory 40GiB --rung sums "
      "--optimizer-in-backward --moments bf16");
  EXPECT_EQ(of_model.model.gpt, "13b");
  EXPECT_EQ(of_model.model.batch, "8");
  EXPECT_EQ(of_model.model.moments, "bf16");
  EXPECT_FALSE(of_model.model.clips);
  EXPECT_EQ(of_model.machine, "8x-h200");
  EXPECT_EQ(of_model.nodes, 2);
  EXPECT_EQ(of_model.plans.device_memory, 40_GiB);
  EXPECT_EQ(of_model.highest, Rung::sums);
  EXPECT_EQ(parse_parallel("--gpt 13b --cluster c.json").cluster_file, "c.json");
  EXPECT_EQ(parse_parallel("--costs x.json --objective step").objective, ParallelObjective::step);
  EXPECT_EQ(parse_parallel("--costs x.json --memory unlimited").memory, unlimited);
}

TEST(ParallelOptions, NameTheOptionThatIsWrong) {
  for (const auto& [words, message] :
       {std::pair{"--devices 0", "--devices: 0 is no number of devices; give 1 to 4096"},
        {"--devices -1", "--devices: -1"},
        {"--devices 4097", "--devices: 4097"},
        {"--memory 0", "--memory: nothing fits in 0 bytes"},
        {"--memory lots", "--memory: \"lots\""},
        {"--objective fastest", "--objective: \"fastest\" is none; give step or largest-stage"},
        {"--nodes 0", "--nodes: 0 is no number of nodes; give 1 to 4096"},
        {"--rung top", "--rung: \"top\" is none; give sums, bounds or plans"},
        {"--limit 0", "--limit: a search of no combinations finds nothing"}}) {
    test::expect_refused([&] { parse_parallel(std::string("--costs x.json ") + words); }, message);
  }
}

// Of the program itself.
TEST(ParallelProgram, AnswersWithItsExitCode) {
  const TemporaryFolder folder;
  const std::string file = folder.make("costs.json", R"({"format": "stowage.parallel_costs", "version": 1,
    "devices": 2, "micro_batches": 4, "layers": [{"name": "block", "repeat": 2, "variants": [
      {"name": "one", "devices": 1, "forward_seconds": 1, "backward_seconds": 2, "bytes": 1000}]}]})");
  const Result fits =
      run_stowage("parallel --costs " + file + " --json --trace " + folder.file("trace.json"));
  EXPECT_EQ(fits.code, 0) << fits.output;
  EXPECT_EQ(nlohmann::json::parse(fits.output)["grids"][0]["step_seconds"], 15.0);
  EXPECT_EQ(folder.entries(), 2U);
  EXPECT_EQ(run_stowage("parallel --costs " + file + " --memory 1000").code, 0);
  EXPECT_EQ(run_stowage("parallel --costs " + file + " --memory 999").code, 2);
  EXPECT_THAT(run_stowage("parallel --help").output, HasSubstr("Exit code: 0 there is a pipeline, 2 none"));
}

TEST(ParallelProgram, RefusesBadInputInOneLine) {
  const TemporaryFolder folder;
  const std::string bad = folder.make("bad.json", R"({"format": "stowage.parallel_costs", "version": 2})");
  for (const auto& [arguments, words] : {std::pair{"--costs " + bad, "bad.json': parallel costs"},
                                         {"--costs " + folder.file("none.json"), "none.json'"},
                                         {"--costs " + bad + " --devices 0", "--devices: 0"},
                                         {std::string("--costs /dev/zero"), "/dev/zero'"}}) {
    const Result result = run_stowage("parallel " + arguments);
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(words));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
  const Result missing = run_stowage("parallel");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.output, HasSubstr("nothing to cut: give --costs FILE, or a model"));
}

}  // namespace
}  // namespace stowage
