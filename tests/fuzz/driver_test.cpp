// The driver on a target with planted defects: it finds each, keeps the input, and passes what has none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;

class Driver : public ::testing::Test {
 protected:
  int run(const std::string& defect, const std::string& arguments) {
    const std::string command = "STOWAGE_PLANTED=" + defect + " " + STOWAGE_PLANTED_FUZZ + " --keep '" +
                                folder_.file(".") + "' " + arguments + " 2>&1";
    output_.clear();
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return -1;
    std::array<char, 4096> block;
    while (const std::size_t count = std::fread(block.data(), 1, block.size(), pipe))
      output_.append(block.data(), count);
    const int status = ::pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // It is found, and its input alone does it again.
  void expect_found(const std::string& defect, const std::string& words) {
    EXPECT_EQ(run(defect, "--runs 2000 --seconds 1"), 1) << output_;
    EXPECT_THAT(output_, HasSubstr(words));
    const std::string mark = "; its input: ";
    const std::size_t at = output_.find(mark);
    ASSERT_NE(at, std::string::npos) << output_;
    const std::string kept = output_.substr(at + mark.size(), output_.size() - at - mark.size() - 1);
    const std::string input = contents_of(kept);
    EXPECT_THAT(input, HasSubstr("defect"));
    EXPECT_EQ(run(defect, "--seconds 1 '" + kept + "'"), 1) << output_;
    EXPECT_EQ(run("none", "'" + kept + "'"), 0) << output_;
    const std::size_t number = kept.find("run-") + 4;
    EXPECT_EQ(run("none", "--only " + kept.substr(number)), 0) << output_;
    EXPECT_EQ(run(defect, "--seconds 1 --only " + kept.substr(number)), 1) << output_;
  }
  TemporaryFolder folder_;
  std::string output_;
};

TEST_F(Driver, PassesATargetWithoutDefects) {
  EXPECT_EQ(run("none", "--runs 500"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr(": 502 inputs, "));
  EXPECT_EQ(folder_.entries(), 0U);
}

TEST_F(Driver, FindsACrash) { expect_found("crash", "run-"); }
TEST_F(Driver, FindsAnExceptionOfAnotherType) {
  expect_found("exception", "neither parsed nor InvalidInput: planted");
}
TEST_F(Driver, FindsAnEndlessLoop) { expect_found("loop", "took more CPU time than it may"); }
TEST_F(Driver, FindsAnAllocationWithoutBounds) { expect_found("memory", "run-"); }

TEST_F(Driver, RefusesSeedsThatAreNotParsed) {
  EXPECT_EQ(run("refuse", "--runs 10"), 1);
  EXPECT_THAT(output_, HasSubstr("only 0 of 2 seeds are parsed"));
}

TEST_F(Driver, TellsItsUsage) {
  EXPECT_EQ(run("none", "--runs many"), 2);
  EXPECT_EQ(run("none", "--frobnicate 1"), 2);
  EXPECT_THAT(output_, HasSubstr("usage: "));
}

}  // namespace
}  // namespace stowage
