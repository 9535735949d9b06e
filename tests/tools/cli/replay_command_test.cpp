#include "tools/cli/replay_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "src/history/histories.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class ReplayCommandTest : public ::testing::Test {
 protected:
  // 8 MiB live at most. PyTorch takes a segment of 20 MiB for the three.
  ReplayCommandTest() {
    command_.file =
        folder_.make("x.csv", "id,lower,upper,size\na,0,2,4194304\nb,1,3,4194304\nc,2,3,4194304\n");
  }
  int run() {
    output_.clear();
    return run_replay_command(command_, output_);
  }
  nlohmann::json json() {
    command_.json = true;
    run();
    return nlohmann::json::parse(output_);
  }
  void expect_refused(const std::string& words) {
    test::expect_refused([&] { run(); }, words);
    EXPECT_EQ(output_, "");
  }
  TemporaryFolder folder_;
  ReplayCommand command_;
  std::string output_;
};

TEST_F(ReplayCommandTest, AnswersWithALineForEachPolicy) {
  EXPECT_EQ(run(), 0);
  std::istringstream lines(output_);
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line, MatchesRegex("policy +operations +peak_live_bytes +peak_reserved_bytes +ratio +"
                                 "nanoseconds_per_operation"));
  for (const std::string& policy : replay_policies()) {
    std::getline(lines, line);
    EXPECT_THAT(line, MatchesRegex(policy + " +[0-9]+ +8388608 +[0-9]+ +[0-9.]+ +[0-9.]+"));
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(ReplayCommandTest, ReplaysLifetimesThreeTimes) {
  command_.policy = "pytorch";
  const nlohmann::json pytorch = json();
  EXPECT_EQ(pytorch["policy"], "pytorch");
  EXPECT_EQ(pytorch["operations"], 18);
  EXPECT_EQ(pytorch["iterations"], 3);
  EXPECT_EQ(pytorch["peak_live_bytes"], 8_MiB);
  EXPECT_EQ(pytorch["peak_reserved_bytes"], 20_MiB);
  EXPECT_EQ(pytorch["ratio"], 2.5);
  EXPECT_GT(pytorch["nanoseconds_per_operation"], 0);
  EXPECT_EQ(pytorch["out_of_memory"], false);
}

TEST_F(ReplayCommandTest, ShowsThePlanFromItsFirstIterationOn) {
  command_.policy = "planned";
  const nlohmann::json planned = json();
  EXPECT_EQ(planned["operations"], 12);
  EXPECT_EQ(planned["warm"], true);
  EXPECT_EQ(planned["peak_reserved_bytes"], 8_MiB);
  EXPECT_EQ(planned["ratio"], 1);
  EXPECT_EQ(planned["first_peak_live_bytes"], 8_MiB);
  EXPECT_GE(planned["first_peak_reserved_bytes"], 8_MiB);
}

TEST_F(ReplayCommandTest, TakesHistories) {
  command_.file = folder_.make("run.jsonl", history_header() + history_allocate(1, 9, 1_MiB, 0) +
                                                history_iteration(2, 1) + history_free(3, 9));
  for (const nlohmann::json& answer : json()) {
    EXPECT_EQ(answer["operations"], 2) << answer;
    EXPECT_EQ(answer["iterations"], 1);
    EXPECT_EQ(answer["peak_live_bytes"], 1_MiB);
  }
}

TEST_F(ReplayCommandTest, SaysWhichPolicyRunsOut) {
  command_.limit = 19_MiB;
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(output_, HasSubstr("out of memory\n"));
  command_.policy = "pytorch";
  const nlohmann::json answer = json();
  EXPECT_EQ(answer["out_of_memory"], true);
  EXPECT_THAT(std::string(answer["error"]), HasSubstr("raise the limit"));
  command_.limit = 20_MiB;
  EXPECT_EQ(run(), 0);
}

TEST_F(ReplayCommandTest, NamesWhatIsWrong) {
  const std::string file = command_.file;
  command_.policy = "best";
  expect_refused("--policy: 'best' is no policy; give stowage, planned, ");
  command_.policy = "all";
  command_.limit = 0;
  expect_refused("--limit: nothing fits in 0 bytes");
  command_.limit = unlimited;
  command_.file = folder_.file("none.csv");
  expect_refused("none.csv");
  command_.file = folder_.make("bad.csv", "id,lower,upper,size\na,2,1,5\n");
  expect_refused("bad.csv', line 2: lower 2 is not before upper 1");
  command_.file = folder_.make("bad.jsonl", history_header() + history_free(1, 1) + history_free(2, 1));
  expect_refused("bad.jsonl', line 3: 'id' is freed already");
}

}  // namespace
}  // namespace stowage
