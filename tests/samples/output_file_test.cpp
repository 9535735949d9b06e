#include "samples/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "stowage/error.h"
#include "tests/samples/temporary_folder.h"

namespace stowage::samples {
namespace {

TEST(OutputFile, WholeAppearsAtCommitAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.make("out", "old");
  OutputFile file("--trace", path, Writing::whole);
  file.write("new text");
  file.flush();
  EXPECT_EQ(contents_of(path), "old");
  file.commit();
  EXPECT_EQ(contents_of(path), "new text");
  EXPECT_EQ(folder.entries(), 1U);
}

// Of a process that was killed and had the same number.
TEST(OutputFile, WholeIsNotBehindWhatLiesUnderItsTemporaryName) {
  const TemporaryFolder folder;
  folder.make("out." + std::to_string(::getpid()) + ".part", "an old half");
  OutputFile file("--trace", folder.file("out"), Writing::whole);
  file.write("new");
  file.commit();
  EXPECT_EQ(contents_of(folder.file("out")), "new");
}

TEST(OutputFile, WholeLeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  {
    OutputFile file("--trace", folder.file("out"), Writing::whole);
    file.write("half");
  }
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(OutputFile, GrowingKeepsTheOldUntilStart) {
  const TemporaryFolder folder;
  const std::string path = folder.make("log", "an earlier run\n");
  { const OutputFile file("--log", path, Writing::growing); }
  EXPECT_EQ(contents_of(path), "an earlier run\n");
  OutputFile file("--log", path, Writing::growing);
  file.start();
  file.write("a\n");
  file.flush();
  EXPECT_EQ(contents_of(path), "a\n");
}

TEST(OutputFile, GrowingLeavesNothingWithoutStart) {
  const TemporaryFolder folder;
  { const OutputFile file("--log", folder.file("log"), Writing::growing); }
  EXPECT_EQ(folder.entries(), 0U);
  OutputFile started("--log", folder.file("log"), Writing::growing);
  started.start();
  started = OutputFile();
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(OutputFile, WritesThroughALink) {
  const TemporaryFolder folder;
  const std::string target = folder.make("target", "old");
  std::filesystem::create_symlink(target, folder.file("link"));
  OutputFile file("--trace", folder.file("link"), Writing::whole);
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_EQ(contents_of(target), "new");
}

TEST(OutputFile, DoesNotReplaceADevice) {
  OutputFile file("--trace", "/dev/null", Writing::whole);
  file.write("text");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(OutputFile, RefusesBadPathsAtOnce) {
  const TemporaryFolder folder;
  for (const Writing writing : {Writing::whole, Writing::growing}) {
    for (const std::string& path : {folder.file(""), folder.file("no/such/folder")}) {
      try {
        const OutputFile file("--log", path, writing);
        ADD_FAILURE() << path;
      } catch (const InvalidInput& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("--log " + path));
      }
    }
  }
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(OutputFile, TellsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  OutputFile file("--log", "/dev/full", Writing::growing);
  file.start();
  file.write("line\n");
  EXPECT_THROW(file.flush(), Error);
}

TEST(OutputFile, AnEmptyPathIsNotWanted) {
  OutputFile file("--log", "", Writing::growing);
  EXPECT_FALSE(file.wanted());
  file.start();
  file.write("x");
  file.commit();
}

}  // namespace
}  // namespace stowage::samples
