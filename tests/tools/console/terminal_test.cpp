#include "tools/console/terminal.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

TEST(TerminalColumns, AFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(terminal_columns(file), 0);
  std::fclose(file);
}

}  // namespace
}  // namespace stowage
