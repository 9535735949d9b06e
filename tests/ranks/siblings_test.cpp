#include "src/ranks/siblings.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace stowage::ranks {
namespace {

using Ranks = std::vector<int>;

constexpr const char* variable = "STOWAGE_TEST_RANK";

std::string environment_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A process that does nothing for so many seconds, with that environment.
pid_t start(const char* rank, const char* seconds = "600") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(variable, rank, 1);
    ::execlp("sleep", "sleep", seconds, nullptr);
    ::_exit(127);
  }
  while (environment_of(child).find(variable) == std::string::npos) ::usleep(1000);
  return child;
}

// It ends, and is not reaped yet.
void wait_for(pid_t child) {
  siginfo_t information;
  ::waitid(P_PID, static_cast<id_t>(child), &information, WEXITED | WNOWAIT);
}

void end(pid_t child) {
  ::kill(child, SIGKILL);
  wait_for(child);
}

TEST(Siblings, TellsWhichHasEnded) {
  const pid_t first = start("0"), second = start("3");
  Siblings siblings(::getpid(), variable);
  EXPECT_EQ(siblings.ended(), Ranks{});
  end(second);
  EXPECT_EQ(siblings.ended(), Ranks{3});
  ::waitpid(second, nullptr, 0);
  EXPECT_EQ(siblings.ended(), Ranks{3});
  end(first);
  ::waitpid(first, nullptr, 0);
}

// One that a signal has ended is named before those that have ended for it.
TEST(Siblings, TellsWhichWasKilled) {
  const pid_t by_itself = start("0", "1"), killed = start("2");
  Siblings siblings(::getpid(), variable);
  EXPECT_EQ(siblings.ended(), Ranks{});
  wait_for(by_itself);
  EXPECT_EQ(siblings.ended(), Ranks{0});
  end(killed);
  EXPECT_EQ(siblings.ended(), Ranks{2});
  ::waitpid(killed, nullptr, 0);
  EXPECT_EQ(siblings.ended(), (Ranks{0, 2}));
  ::waitpid(by_itself, nullptr, 0);
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
  EXPECT_EQ(some.ended(true), Ranks{});
  EXPECT_EQ(three.ended(false), Ranks{});
  EXPECT_EQ(three.ended(true), Ranks{1});
  EXPECT_EQ(Siblings(::getppid(), "STOWAGE_OTHER_RANK", 3).ended(true), Ranks{});
}

TEST(Siblings, KnowsNothingOfOtherProcesses) {
  const pid_t other = start("0");
  Siblings siblings(::getpid(), "STOWAGE_OTHER_RANK");
  EXPECT_EQ(siblings.ended(), Ranks{});
  end(other);
  EXPECT_EQ(siblings.ended(), Ranks{});
  ::waitpid(other, nullptr, 0);
  EXPECT_EQ(Siblings(1 << 30, variable).ended(), Ranks{});
}

}  // namespace
}  // namespace stowage::ranks
