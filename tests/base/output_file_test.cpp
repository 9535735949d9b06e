#include "src/base/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "stowage/error.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

void write_whole(const std::string& path, std::string_view text) { write_file("--trace", path, text); }

mode_t mode_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777U : 0;
}

TEST(OutputFile, WholeAppearsAtCommitAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.make("out", "old");
  OutputFile file("--trace", path, Writing::whole);
  file.write("new text");
  EXPECT_EQ(contents_of(path), "old");
  file.commit();
  EXPECT_EQ(contents_of(path), "new text");
  EXPECT_EQ(folder.entries(), 1U);
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

TEST(OutputFile, OneOfSeveralRunsStartsANewLog) {
  const TemporaryFolder folder;
  const std::string path = folder.file("log");
  constexpr int runs = 10;
  std::vector<OutputFile> files;
  for (int i = 0; i < runs; ++i) files.emplace_back("--log", path, Writing::growing);
  std::atomic<int> started{0}, refused{0};
  std::vector<std::thread> threads;
  for (OutputFile& file : files)
    threads.emplace_back([&] {
      try {
        file.start();
        file.write("one\n");
        ++started;
      } catch (const InvalidInput& error) {
        EXPECT_EQ(error.what(), "--log " + path + ": another run holds this file; name another");
        ++refused;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(started, 1);
  EXPECT_EQ(refused, runs - 1);
  EXPECT_EQ(contents_of(path), "one\n");
}

TEST(OutputFile, ALogIsHeldUntilItsRunEnds) {
  const TemporaryFolder folder;
  const std::string path = folder.make("log", "an earlier run\n");
  const auto open_log = [&] { return OutputFile("--log", path, Writing::growing); };
  {
    OutputFile file = open_log();
    test::expect_refused(open_log, "--log " + path + ": another run holds this file");
    file.start();
    file.write("a\n");
    test::expect_refused(open_log, "another run holds this file");
    EXPECT_EQ(contents_of(path), "a\n");
    file.commit();
  }
  OutputFile next = open_log();
  next.start(2);
  next.write("b\n");
  EXPECT_EQ(contents_of(path), "a\nb\n");
}

TEST(OutputFile, WritesThroughALinkAndKeepsTheMode) {
  const TemporaryFolder folder;
  const std::string target = folder.make("target", "old");
  fs::create_symlink("target", folder.file("link"));
  fs::create_symlink(folder.file("link"), folder.file("second"));
  ::chmod(target.c_str(), 0640);
  write_whole(folder.file("second"), "new");
  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_TRUE(fs::is_symlink(folder.file("second")));
  EXPECT_EQ(contents_of(target), "new");
  EXPECT_EQ(mode_of(target), 0640U);
  EXPECT_EQ(folder.entries(), 3U);
}

TEST(OutputFile, RefusesALinkToNothing) {
  const TemporaryFolder folder;
  fs::create_symlink(folder.file("none"), folder.file("link"));
  for (const Writing writing : {Writing::whole, Writing::placed, Writing::growing})
    test::expect_refused([&] { OutputFile("--trace", folder.file("link"), writing); },
                         "link to a file that is not there");
  EXPECT_EQ(folder.entries(), 1U);
}

// Root may, by the system's rules; who took the write bits away did not mean it so.
TEST(OutputFile, RefusesWhatHasNoWriteBit) {
  const TemporaryFolder folder;
  const std::string file = folder.make("file", "kept"), inner = folder.file("inner");
  fs::create_directory(inner);
  ::chmod(file.c_str(), 0444);
  ::chmod(inner.c_str(), 0555);
  for (const Writing writing : {Writing::whole, Writing::placed, Writing::growing}) {
    test::expect_refused([&] { OutputFile("--trace", file, writing); },
                         "--trace " + file + ": cannot be written (Permission denied)");
    test::expect_refused([&] { OutputFile("--trace", inner + "/new", writing); }, "Permission denied");
  }
  EXPECT_EQ(contents_of(file), "kept");
  EXPECT_EQ(mode_of(file), 0444U);
  EXPECT_TRUE(fs::is_empty(inner));
}

TEST(OutputFile, WritesToADevice) {
  const FileHandle before(::dup(STDERR_FILENO));
  ::dup2(FileHandle(::open("/dev/null", O_WRONLY)).get(), STDERR_FILENO);  // which makes no difference
  for (const Writing writing : {Writing::whole, Writing::placed, Writing::growing}) {
    OutputFile file("--trace", "/dev/null", writing);
    file.start();
    file.write("text");
    if (writing == Writing::placed) file.write_at(7, std::as_bytes(std::span("x", 1)));
    file.commit();
    EXPECT_TRUE(fs::is_character_file("/dev/null"));
  }
  ::dup2(before.get(), STDERR_FILENO);
}

TEST(OutputFile, WritesToAFifo) {
  const TemporaryFolder folder;
  const std::string path = folder.file("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const Writing writing : {Writing::whole, Writing::growing}) {
    std::string got;
    std::thread reader([&] { got = contents_of(path); });
    {
      OutputFile file("--trace", path, writing);
      file.start();
      file.write("text");
      file.commit();
    }
    reader.join();
    EXPECT_EQ(got, "text");
    EXPECT_TRUE(fs::is_fifo(path));
  }
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(OutputFile, RefusesOffsetsInAFifo) {
  const TemporaryFolder folder;
  const std::string path = folder.file("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const FileHandle reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
  test::expect_refused([&] { OutputFile("", path, Writing::placed); }, path + ": this is a stream");
}

// What a shell made the standard output is not replaced, and keeps what is printed before and behind.
TEST(OutputFile, SharesTheStandardOutput) {
  const TemporaryFolder folder;
  const std::string path = folder.make("out", "");
  std::fflush(stdout);
  const FileHandle before(::dup(STDOUT_FILENO));
  FileHandle target(::open(path.c_str(), O_WRONLY));
  ::dup2(target.get(), STDOUT_FILENO);
  target.close();
  EXPECT_EQ(::write(STDOUT_FILENO, "a", 1), 1);
  write_whole("/dev/stdout", "b");
  write_whole(path, "c");
  write_whole("-", "-");
  OutputFile log("--log", path, Writing::growing);
  log.start();
  log.write("d");
  EXPECT_EQ(::write(STDOUT_FILENO, "e", 1), 1);
  test::expect_refused([&] { OutputFile("--output", path, Writing::placed); }, "this is a stream");
  test::expect_refused([&] { OutputFile("--weights", "-", Writing::placed); },
                       "--weights -: this is a stream");
  ::dup2(before.get(), STDOUT_FILENO);
  EXPECT_EQ(contents_of(path), "abc-de");
}

TEST(OutputFile, WritesAtOffsets) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out");
  OutputFile file("", path, Writing::placed);
  file.write("__cd");
  file.write_at(0, std::as_bytes(std::span("ab", 2)));
  file.commit();
  EXPECT_EQ(contents_of(path), "abcd");
}

// A stranger cannot guess it, nor lay a link there.
TEST(OutputFile, HidesWhatIsNotWholeUnderAnotherNameEachTime) {
  const TemporaryFolder folder;
  const OutputFile one("--trace", folder.file("out"), Writing::whole);
  const OutputFile other("--trace", folder.file("out"), Writing::whole);
  EXPECT_EQ(folder.entries(), 2U);
  EXPECT_FALSE(fs::exists(folder.file("out")));
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
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  OutputFile file("--log", "/dev/full", Writing::growing);
  file.start();
  EXPECT_THROW(file.write("line\n"), Error);
}

TEST(OutputFile, AnEmptyPathIsNotWanted) {
  OutputFile file("--log", "", Writing::growing);
  EXPECT_FALSE(file.wanted());
  file.start();
  file.write("x");
  file.commit();
}

}  // namespace
}  // namespace stowage
