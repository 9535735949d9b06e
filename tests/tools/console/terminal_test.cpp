#include "tools/console/terminal.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

TEST(TerminalColumns, AFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(terminal_columns(file), 0);
  std::fclose(file);
}

TEST(ProgressLine, IsErasedByTheNextAndAtTheEnd) {
  const TemporaryFolder folder;
  std::FILE* file = std::fopen(folder.file("terminal").c_str(), "wb");
  {
    ProgressLine line(file);
    line.show("budget 1 of 2");
    line.show("budget 2 of 2");
  }
  std::fclose(file);
  EXPECT_EQ(contents_of(folder.file("terminal")),
            "\r\033[Kplanning: budget 1 of 2\r\033[Kplanning: budget 2 of 2\r\033[K");
}

TEST(ProgressLine, SaysNothingWhereThereIsNoTerminal) {
  const TemporaryFolder folder;
  std::FILE* file = std::fopen(folder.file("none").c_str(), "wb");
  EXPECT_EQ(terminal_or_null(file), nullptr);
  {
    ProgressLine quiet(terminal_or_null(file));
    quiet.show("budget 1 of 2");
    const ProgressLine unused(file);
  }
  std::fclose(file);
  EXPECT_EQ(contents_of(folder.file("none")), "");
}

}  // namespace
}  // namespace stowage
