#include "src/cli/files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

class FilesTest : public ::testing::Test {
 protected:
  FilesTest() {
    std::string pattern = ::testing::TempDir() + "stowage-files-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = pattern;
  }
  ~FilesTest() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::ptrdiff_t entries() const { return std::distance(fs::directory_iterator(folder_), {}); }
  fs::path folder_;
};

TEST_F(FilesTest, ReadsBackWhatWasWrittenAndLeavesNothingElse) {
  const std::string text("a\0b\r\n", 5);
  write_file(file("x"), "longer than what replaces it");
  write_file(file("x"), text);
  EXPECT_EQ(read_file(file("x"), 100, "a text"), text);
  EXPECT_EQ(entries(), 1);
}

TEST_F(FilesTest, RefusesWhatIsNotThereAndWhatIsTooLarge) {
  test::expect_refused([&] { read_file(file("y"), 100, "a text"); }, file("y"));
  write_file(file("x"), "12345");
  EXPECT_EQ(read_file(file("x"), 5, "a text"), "12345");
  test::expect_refused([&] { read_file(file("x"), 4, "a text"); }, "has 5 bytes");
}

TEST_F(FilesTest, APlaceIsCheckedWithoutATrace) {
  write_file(file("x"), "old");
  check_writable(file("x"));
  check_writable(file("new"));
  EXPECT_EQ(read_file(file("x"), 100, "a text"), "old");
  EXPECT_EQ(entries(), 1);
  test::expect_refused([&] { check_writable(file("none/x")); }, file("none/x"));
  test::expect_refused([&] { check_writable(folder_.string()); }, "it is a folder");
}

TEST_F(FilesTest, AFailedWriteLeavesNothing) {
  test::expect_refused([&] { write_file(file("none/x"), "text"); }, file("none/x"));
  fs::create_directories(folder_ / "full" / "inner");
  test::expect_refused([&] { write_file(file("full"), "text"); }, file("full"));
  EXPECT_EQ(entries(), 1);
}

}  // namespace
}  // namespace stowage
