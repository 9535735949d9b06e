#include "tools/cli/child_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

ChildEnd sh(const std::string& script,
            const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  return run_child({"sh", "-c", script}, variables);
}

TEST(ChildProcess, EndsWithItsCode) {
  const ChildEnd end = sh("exit 7");
  EXPECT_FALSE(end.by_signal);
  EXPECT_EQ(end.number, 7);
  EXPECT_EQ(end_as(end), 7);
}

TEST(ChildProcess, EndsWithItsSignal) {
  const ChildEnd end = sh("kill -KILL $$");
  EXPECT_TRUE(end.by_signal);
  EXPECT_EQ(end.number, SIGKILL);
  EXPECT_EXIT(end_as(end), ::testing::KilledBySignal(SIGKILL), "");
}

TEST(ChildProcess, SeesTheVariables) {
  EXPECT_EQ(
      sh("test \"$STOWAGE_A\" = 'x y' && test \"$HOME\" = 2", {{"STOWAGE_A", "x y"}, {"HOME", "2"}}).number,
      0);
}

TEST(ChildProcess, ThatIsNotThereIsRefused) {
  test::expect_refused([] { run_child({"/nowhere/program"}, {}); }, "'/nowhere/program' cannot be started");
  const TemporaryFolder folder;
  const std::string file = folder.make("file", "x");
  test::expect_refused([&] { run_child({file}, {}); }, "Permission denied");
}

// A signal that this process alone is sent; the program says that it is ready.
TEST(ChildProcess, IsToldOfSignals) {
  const TemporaryFolder folder;
  const std::string ready = folder.file("ready");
  const pid_t middle = fork();
  if (middle == 0) {
    const ChildEnd end = sh("trap 'exit 9' TERM; : > " + ready + "; while :; do sleep 0.02; done");
    _exit(end.number);
  }
  while (!std::filesystem::exists(ready)) usleep(10'000);
  kill(middle, SIGTERM);
  int status = 0;
  waitpid(middle, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 9);
}

TEST(ChildProcess, LeavesHandlersAsTheyWere) {
  struct sigaction before {
  }, after{};
  sigaction(SIGTERM, nullptr, &before);
  sh("true");
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

}  // namespace
}  // namespace stowage
