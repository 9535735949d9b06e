#include "tools/console/interrupt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "src/base/temporary.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

// How a child ends to which `signals` come while it has a temporary file; 0 where it lives on.
int end_after(const TemporaryFolder& folder, std::initializer_list<int> signals) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Temporary file(folder.file("."), "name", Temporary::Kind::file);
    watch_interrupts();
    for (const int signal : signals) ::raise(signal);
    ::_exit(interrupted() && folder.entries() == 1 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Interrupt, TheSecondOfOneKindEndsAtOnceAndLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryFolder folder;
    const int status = end_after(folder, {SIGHUP, signal, signal});
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(folder.entries(), 0U);
  }
}

TEST(Interrupt, TheFirstAndThoseOfALostTerminalDoNot) {
  const TemporaryFolder folder;
  EXPECT_EQ(end_after(folder, {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGHUP, SIGPIPE}), 0);
}

}  // namespace
}  // namespace stowage
