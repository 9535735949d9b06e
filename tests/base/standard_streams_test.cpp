#include "src/base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "stowage/error.h"

namespace stowage {
namespace {

// In a child, whose streams may be spoilt; it exits with 0 where `action` returns true.
template <class Action>
void expect_in_child(Action action) {
  EXPECT_EXIT(std::_Exit(action() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(StandardStreams, AFullOutputIsAnError) {
  expect_in_child([] {
    ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO);
    std::fputs("an answer", stdout);
    try {
      require_printed();
    } catch (const Error&) {
      return true;
    }
    return false;
  });
}

TEST(StandardStreams, AnOutputThatTakesAllIsNone) {
  expect_in_child([] {
    ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
    std::fputs("an answer", stdout);
    require_printed();
    return true;
  });
}

TEST(StandardStreams, WhatIsDroppedGoesNowhere) {
  testing::internal::CaptureStdout();
  std::puts("before");
  const int output = ::dup(STDOUT_FILENO);
  drop_standard_output();
  std::puts("behind");
  require_printed();
  ::dup2(output, STDOUT_FILENO);
  ::close(output);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "before\n");
}

TEST(StandardStreams, AClosedOneTakesNoFile) {
  expect_in_child([] {
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) ::close(stream);
    keep_standard_streams();
    return ::open("/dev/null", O_RDONLY) > STDERR_FILENO;
  });
}

}  // namespace
}  // namespace stowage
