#include "tools/cli/files.h"

#include <gtest/gtest.h>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

TEST(ReadFile, ReadsEveryByte) {
  const TemporaryFolder folder;
  const std::string text("a\0b\r\n", 5);
  EXPECT_EQ(read_file(folder.make("x", text), 100, "a text"), text);
}

TEST(ReadFile, PassesOverTheMarkOfUtf8) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_file(folder.make("x", "\xef\xbb\xbfid,lower"), 100, "a text"), "id,lower");
  EXPECT_EQ(read_file(folder.make("y", "a\xef\xbb\xbf"), 100, "a text"), "a\xef\xbb\xbf");
}

TEST(ReadFile, RefusesWhatIsNotThereAndWhatIsTooLarge) {
  const TemporaryFolder folder;
  test::expect_refused([&] { read_file(folder.file("y"), 100, "a text"); }, folder.file("y"));
  const std::string path = folder.make("x", "12345");
  EXPECT_EQ(read_file(path, 5, "a text"), "12345");
  test::expect_refused([&] { read_file(path, 4, "a text"); }, "has 5 bytes");
}

}  // namespace
}  // namespace stowage
