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

using ::testing::HasSubstr;

ParallelCommand parse_parallel(const std::string& line) {
  CLI::App app;
  RawParallelOptions words;
  add_parallel(app, words);
  app.parse("parallel " + line, false);
  return parse(words);
}

TEST(ParallelOptions, AreUnderstood) {
  const ParallelCommand plain = parse_parallel("--costs x.json");
  EXPECT_EQ(plain.costs_file, "x.json");
  EXPECT_FALSE(plain.devices || plain.memory || plain.objective || plain.json);
  const ParallelCommand command = parse_parallel(
      "--costs x.json --devices 8 --memory 2GiB --objective largest-stage --limit 1000 --json --trace "
      "t.json");
  EXPECT_EQ(command.devices, 8);
  EXPECT_EQ(command.memory, 2_GiB);
  EXPECT_EQ(command.objective, ParallelObjective::largest_stage);
  EXPECT_EQ(command.most_work, 1000U);
  EXPECT_TRUE(command.json);
  EXPECT_EQ(command.trace_file, "t.json");
  EXPECT_EQ(parse_parallel("--costs x.json --memory unlimited").memory, unlimited);
}

TEST(ParallelOptions, NameTheOptionThatIsWrong) {
  test::expect_refused([] { parse_parallel("--costs x.json --devices -1"); }, "--devices: -1");
  test::expect_refused([] { parse_parallel("--costs x.json --devices 5000"); }, "--devices: 5000");
  test::expect_refused([] { parse_parallel("--costs x.json --memory 0"); }, "--memory: nothing fits");
  test::expect_refused([] { parse_parallel("--costs x.json --memory lots"); }, "--memory: \"lots\"");
  test::expect_refused([] { parse_parallel("--costs x.json --objective fast"); }, "--objective: \"fast\"");
  test::expect_refused([] { parse_parallel("--costs x.json --limit 0"); }, "--limit: ");
}

// Of the program itself.
TEST(ParallelProgram, AnswersWithItsExitCode) {
  const TemporaryFolder folder;
  const std::string file =
      folder.make("costs.json", R"({"format": "stowage.parallel_costs", "version": 1, "devices": 2,
      "micro_batches": 3, "memory_bytes": 100, "layers": [{"name": "block", "repeat": 2, "variants":
      [{"name": "one", "devices": 1, "forward_seconds": 1, "backward_seconds": 2, "bytes": 60}]}]})");
  const test::Result fits =
      test::run_stowage("parallel --costs " + file + " --json --trace " + folder.file("t.json"));
  EXPECT_EQ(fits.code, 0) << fits.output;
  const nlohmann::json answer = nlohmann::json::parse(fits.output);
  EXPECT_EQ(answer["grids"][0]["step_seconds"], 12);
  EXPECT_EQ(nlohmann::json::parse(contents_of(folder.file("t.json")))["traceEvents"].size(), 2U + 2 * 2 * 3);
  const test::Result too_small = test::run_stowage("parallel --costs " + file + " --memory 50");
  EXPECT_EQ(too_small.code, 2);
  EXPECT_THAT(too_small.output, HasSubstr("the least that would do is 60 B (60 bytes)"));
  const test::Result no_file = test::run_stowage("parallel --costs " + folder.file("other.json"));
  EXPECT_EQ(no_file.code, 2);
  EXPECT_THAT(no_file.output, HasSubstr("other.json"));
  const test::Result no_costs = test::run_stowage("parallel");
  EXPECT_EQ(no_costs.code, 2);
  EXPECT_THAT(no_costs.output, HasSubstr("--costs"));
  const test::Result few = test::run_stowage("parallel --costs " + file + " --devices 1");
  EXPECT_EQ(few.code, 2) << few.output;
}

}  // namespace
}  // namespace stowage
