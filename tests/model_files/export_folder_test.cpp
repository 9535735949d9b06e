#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "stowage/model_files.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using test::expect_refused;

TEST(ExportFolder, AppearsWholeAtTheCommit) {
  const TemporaryFolder folder;
  ExportFolder made(folder.file("m") + "/");
  std::ofstream(made.path() + "/a") << "text";
  EXPECT_FALSE(std::filesystem::exists(folder.file("m")));
  made.commit();
  EXPECT_EQ(contents_of(folder.file("m/a")), "text");
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(ExportFolder, TakesThePlaceOfAnEmptyOne) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("m"));
  ExportFolder made(folder.file("m"));
  std::ofstream(made.path() + "/a") << "text";
  made.commit();
  EXPECT_EQ(contents_of(folder.file("m/a")), "text");
}

// Nothing can be renamed to these: that is told before anything is written.
TEST(ExportFolder, RefusesAPlaceThatCannotBeTaken) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.file("m/n"));
  std::filesystem::remove(folder.file("m/n"));
  expect_refused([&] { ExportFolder(folder.file("m/.")); }, "name a new folder");
  std::filesystem::create_directories(folder.file("o/p"));
  expect_refused([&] { ExportFolder(folder.file("o/p/..")); }, "name a new folder");
  if (std::filesystem::is_empty("/dev/shm"))
    expect_refused([] { ExportFolder("/dev/shm"); }, "name a new folder");
}

TEST(ExportFolder, LeavesNothingWithoutACommit) {
  const TemporaryFolder folder;
  { std::ofstream(ExportFolder(folder.file("m")).path() + "/a") << "text"; }
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(ExportFolder, ReplacesNothing) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("m"));
  folder.make("m/a", "mine");
  folder.make("file", "mine");
  expect_refused([&] { ExportFolder{folder.file("m")}; }, folder.file("m") + ": there are files in it");
  expect_refused([&] { ExportFolder{folder.file("file")}; }, "is no folder");
  expect_refused([&] { ExportFolder{folder.file("none/m")}; }, "cannot be made");
  expect_refused([] { ExportFolder{""}; }, "cannot be made");
  expect_refused([&] { ExportFolder{folder.file(std::string(300, 'm'))}; }, "name too long");
  // One that fills while the model is written.
  ExportFolder late(folder.file("late"));
  std::filesystem::create_directory(folder.file("late"));
  folder.make("late/a", "mine");
  EXPECT_THROW(late.commit(), Error);
  EXPECT_EQ(contents_of(folder.file("late/a")), "mine");
}

}  // namespace
}  // namespace stowage
