#include "src/cli/plan_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "stowage/error.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;

class PlanCommandTest : public ::testing::Test {
 protected:
  PlanCommandTest() {
    command_.graph_file = file("graph.json");
    std::ofstream(command_.graph_file) << to_json(graph_);
  }
  // Of this test alone: tests run at the same time.
  static std::string file(const std::string& name) {
    return ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name() + "." +
           name;
  }
  Graph graph_ = testing::chain_graph();
  PlanCommand command_;
  std::string output_;
};

TEST_F(PlanCommandTest, AnswersYesWithTheAccountAndWritesThePlan) {
  command_.budget.device = minimum_bytes(graph_, command_.machine);
  command_.plan_file = file("plan.json");
  EXPECT_EQ(run_plan_command(command_, output_), 0);
  EXPECT_THAT(output_, HasSubstr("fits          yes"));
  EXPECT_THAT(output_, HasSubstr(std::to_string(command_.budget.device)));
  std::stringstream text;
  text << std::ifstream(command_.plan_file).rdbuf();
  EXPECT_EQ(plan_from_json(text.str()).device_peak_bytes, command_.budget.device);
}

TEST_F(PlanCommandTest, AnswersNoWithTheSmallestBudgetAndTheOpAndWritesNothing) {
  Bytes least = minimum_bytes(graph_, command_.machine);
  command_.budget.device = least - 1;
  command_.plan_file = file("plan.json");
  EXPECT_EQ(run_plan_command(command_, output_), 2);
  EXPECT_THAT(output_, HasSubstr("the smallest budget that works is " + std::to_string(least)));
  EXPECT_FALSE(std::ifstream(command_.plan_file).good());
}

TEST_F(PlanCommandTest, ABadFileIsNamed) {
  command_.graph_file = "/nowhere/graph.json";
  try {
    run_plan_command(command_, output_);
    FAIL() << "no error";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/graph.json"));
  }
}

}  // namespace
}  // namespace stowage
