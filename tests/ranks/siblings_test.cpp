#include "src/ranks/siblings.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace stowage::ranks {
namespace {

constexpr const char* variable = "STOWAGE_TEST_RANK";

std::string environment_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A process that does nothing, with that environment.
pid_t start(const char* rank) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(variable, rank, 1);
    ::execlp("sleep", "sleep", "600", nullptr);
    ::_exit(127);
  }
  while (environment_of(child).find(variable) == std::string::npos) ::usleep(1000);
  return child;
}

void end(pid_t child) {
  ::kill(child, SIGKILL);
  siginfo_t information;
  ::waitid(P_PID, static_cast<id_t>(child), &information, WEXITED | WNOWAIT);  // and is not reaped yet
}

TEST(Siblings, TellsWhichHasEnded) {
  const pid_t first = start("0"), second = start("3");
  Siblings siblings(::getpid(), variable);
  EXPECT_EQ(siblings.ended(), std::nullopt);
  end(second);
  EXPECT_EQ(siblings.ended(), 3);
  ::waitpid(second, nullptr, 0);
  EXPECT_EQ(siblings.ended(), 3);
  end(first);
  ::waitpid(first, nullptr, 0);
}

// The test is the launcher; a child of it asks.
TEST(Siblings, TellsWhichIsNotThere) {
  const pid_t other = start("0");
  const pid_t asking = ::fork();
  if (asking == 0) {
    ::setenv(variable, "2", 1);
    ::execl("/proc/self/exe", "siblings", "--gtest_filter=AskingSibling.*", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(asking, &status, 0), asking);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  end(other);
  ::waitpid(other, nullptr, 0);
}

// In a process of the test above.
TEST(AskingSibling, SeesAllButRankOne) {
  if (std::getenv(variable) == nullptr) GTEST_SKIP() << "for a process that a test starts";
  Siblings some(::getppid(), variable), three(::getppid(), variable, 3);
  EXPECT_EQ(some.ended(true), std::nullopt);
  EXPECT_EQ(three.ended(false), std::nullopt);
  EXPECT_EQ(three.ended(true), 1);
  EXPECT_EQ(Siblings(::getppid(), "STOWAGE_OTHER_RANK", 3).ended(true), std::nullopt);
}

TEST(Siblings, KnowsNothingOfOtherProcesses) {
  const pid_t other = start("0");
  Siblings siblings(::getpid(), "STOWAGE_OTHER_RANK");
  EXPECT_EQ(siblings.ended(), std::nullopt);
  end(other);
  EXPECT_EQ(siblings.ended(), std::nullopt);
  ::waitpid(other, nullptr, 0);
  EXPECT_EQ(Siblings(1 << 30, variable).ended(), std::nullopt);
}

}  // namespace
}  // namespace stowage::ranks
