#include "tools/cli/replay_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/cli/run_stowage.h"

namespace stowage {
namespace {

using test::Result;
using test::run_stowage;
using ::testing::HasSubstr;

ReplayCommand parse_replay(const std::string& line) {
  CLI::App app;
  RawReplayOptions words;
  add_replay(app, words);
  app.parse("replay " + line, false);
  return parse(words);
}

TEST(ReplayOptions, AreUnderstood) {
  const ReplayCommand plain = parse_replay("x.csv");
  EXPECT_EQ(plain.file, "x.csv");
  EXPECT_EQ(plain.policy, "all");
  EXPECT_EQ(plain.limit, unlimited);
  EXPECT_FALSE(plain.json);
  const ReplayCommand command = parse_replay("x.csv --policy pytorch --limit 1GiB --json");
  EXPECT_EQ(command.policy, "pytorch");
  EXPECT_EQ(command.limit, 1_GiB);
  EXPECT_TRUE(command.json);
  test::expect_refused([] { parse_replay("x.csv --limit lots"); }, "--limit: \"lots\"");
}

// Of the program itself.
TEST(ReplayProgram, AnswersWithItsExitCode) {
  const TemporaryFolder folder;
  const std::string file = folder.make("x.csv", "id,lower,upper,size\na,0,2,512\nb,1,4,256\n");
  const Result all = run_stowage("replay " + file);
  EXPECT_EQ(all.code, 0) << all.output;
  EXPECT_THAT(all.output, HasSubstr("pytorch-expandable"));
  const Result one = run_stowage("replay " + file + " --policy planned --json");
  EXPECT_EQ(nlohmann::json::parse(one.output)["policy"], "planned");
  EXPECT_EQ(run_stowage("replay " + file + " --policy pytorch --limit 1MiB").code, 2);
  EXPECT_EQ(run_stowage("replay --help").code, 0);
}

TEST(ReplayProgram, RefusesBadInputInOneLine) {
  const TemporaryFolder folder;
  const std::string bad = folder.make("bad.jsonl", "{\"stowage_history\": 7}\n");
  for (const auto& [arguments, words] : {std::pair{bad, "bad.jsonl', line 1: 'stowage_history' is not 1"},
                                         {folder.file("none.csv"), "none.csv'"},
                                         {bad + " --policy best", "--policy: 'best'"},
                                         {bad + " --limit -1", "--limit: \"-1\""}}) {
    const Result result = run_stowage("replay " + arguments);
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(words));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
  EXPECT_EQ(run_stowage("replay").code, 2);
}

}  // namespace
}  // namespace stowage
