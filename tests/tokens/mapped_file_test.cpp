#include "src/tokens/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

TEST(MappedFile, GivesEveryByte) {
  const TemporaryFolder folder;
  const std::string text = std::string(10000, 'x') + '\0' + "end";
  MappedFile file(folder.make("a", text), "give one");
  EXPECT_EQ(file.text(), text);
  MappedFile other = std::move(file);
  EXPECT_EQ(other.text(), text);
  other = MappedFile(folder.make("b", "b"), "give one");
  EXPECT_EQ(other.text(), "b");
  EXPECT_EQ(MappedFile(folder.make("empty", ""), "give one").text(), "");
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  test::expect_refused([&] { MappedFile(folder.file("none"), "give one"); },
                       "none': No such file or directory; give one");
  test::expect_refused([&] { MappedFile(folder.file(""), "give one"); },
                       "': it is no regular file; give one");
  test::expect_refused([&] { MappedFile("/dev/zero", "give one"); }, "'/dev/zero': it is no regular file");
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  test::expect_refused([&] { MappedFile(folder.file("pipe"), "give one"); }, "pipe': it is no regular file");
}

}  // namespace
}  // namespace stowage
