#include "tools/console/underway.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <thread>

namespace stowage {
namespace {

TEST(TerminalLine, TellsWhatIsDoneAndFits) {
  const UnderwayLine line{"tokenising", "text", 3.4, 0.456};
  EXPECT_EQ(terminal_line(line, 80), "tokenising text: 46%, 3 s");
  EXPECT_EQ(terminal_line({"planning", "9 operations", 12}, 80), "planning 9 operations: 12 s");
  EXPECT_EQ(terminal_line(line, 11), "tokenising");
  EXPECT_EQ(terminal_line(line, 0), "");
}

TEST(PlainLine, StandsInTheTablesColumns) {
  EXPECT_EQ(plain_line({"planning", "9 operations"}), "planning      9 operations\n");
}

// What takes less than a second is told to nobody. (What takes more: train_gpt_signals_test.)
TEST(Underway, IsSilentAtFirst) {
  testing::internal::CaptureStdout();
  for (int i = 0; i < 3; ++i) {
    Underway work("planning", "something");
    work.progress(0.5);
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(EndOfWorkDeathTest, EndsWhatIsUnderWayAndSaysWhy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto work = [] {
    const EndOfWork no_reason([] { return std::string(); });
    const EndOfWork reason([] { return std::string("rank 3 is gone"); });
    const OnAbandon undo([] { std::fputs("undone\n", stderr); });
    const Underway endless("planning", "something");
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(1), ": rank 3 is gone\nundone");
}

TEST(EndOfWork, IsNoReasonOnceItIsOver) {
  {
    const EndOfWork reason([] { return std::string("rank 3 is gone"); });
  }
  const Underway work("planning", "something");
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace stowage
