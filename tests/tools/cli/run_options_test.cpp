#include "tools/cli/run_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/cli/run_stowage.h"

namespace stowage {
namespace {

using test::Result;
using test::run_stowage;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

RunCommand parse_run(const std::string& line) {
  CLI::App app;
  RawRunOptions words;
  words.command.program = {"program"};
  add_run(app, words);
  app.parse("run " + line, false);
  return parse(words);
}

TEST(RunOptions, SayLittleByDefault) {
  const RunCommand command = parse_run("");
  EXPECT_FALSE(command.limit);
  EXPECT_FALSE(command.spill);
  EXPECT_FALSE(command.cache);
  EXPECT_EQ(command.record_file, "");
  EXPECT_EQ(command.report_file, "");
}

TEST(RunOptions, AreUnderstood) {
  const RunCommand command = parse_run("--limit 6GiB --spill 2GiB --record a.csv --report b.html");
  EXPECT_EQ(command.limit, 6_GiB);
  EXPECT_EQ(command.spill, 2_GiB);
  EXPECT_TRUE(parse_run("--cache").cache);
  EXPECT_EQ(command.record_file, "a.csv");
  EXPECT_EQ(command.report_file, "b.html");
}

TEST(RunOptions, NameTheOptionThatIsWrong) {
  test::expect_refused([] { parse_run("--limit lots"); }, "--limit: \"lots\"");
  test::expect_refused([] { parse_run("--limit 0"); }, "--limit: a card of 0 bytes");
  test::expect_refused([] { parse_run("--spill lots"); }, "--spill: \"lots\"");
  test::expect_refused([] { parse_run("--spill 1MiB"); }, "--spill: memory is taken in steps of 2 MiB");
  test::expect_refused([] { parse(RawRunOptions{}); }, "there is no program");
}

TEST(RunOptions, LeaveTheProgramItsOwnWords) {
  Words words = {"run", "--limit", "1G", "--", "program", "--limit", "--", "x"};
  EXPECT_EQ(cut_program(words), (Words{"program", "--limit", "--", "x"}));
  EXPECT_EQ(words, (Words{"run", "--limit", "1G"}));
  Words none = {"run", "program"};
  EXPECT_TRUE(cut_program(none).empty());
  Words other = {"plan", "--", "x"};
  EXPECT_TRUE(cut_program(other).empty());
  EXPECT_EQ(other.size(), 3U);
}

// Of the program itself.
TEST(RunProgram, RefusesWhatItCannotStartInOneLine) {
  const TemporaryFolder folder;
  const std::string text = folder.make("text", "no program");
  for (const std::string& arguments :
       {std::string("run"), std::string("run -- /nowhere/program"), "run -- " + text,
        "run -- " + folder.file(""), std::string("run --limit lots -- true"),
        std::string("run --record /nowhere/record -- true"),
        std::string("run --report /nowhere/report.html -- true")}) {
    const Result result = run_stowage(arguments);
    EXPECT_EQ(result.code, 2) << arguments << ": " << result.output;
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
  for (const std::string& not_behind_dashes :
       {std::string("run true"), std::string("run --limit 1GiB sh -c x")}) {
    const Result result = run_stowage(not_behind_dashes);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.output, HasSubstr("there is no program; give it behind --"));
  }
  EXPECT_THAT(run_stowage("run --help").output, HasSubstr("--limit SIZE"));
}

}  // namespace
}  // namespace stowage
