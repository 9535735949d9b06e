#include "allocator/interpose/record_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/support/temporary_folder.h"

namespace stowage::interpose {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class RecordWriterTest : public ::testing::Test {
 protected:
  std::string text() const { return contents_of(path_); }
  long lines() const {
    const std::string all = text();
    return std::count(all.begin(), all.end(), '\n');
  }

  std::string folder_path(const char* name) const {
    std::filesystem::create_directory(folder_.file(name));
    return folder_.file(name);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.make("record", "");
  std::string pending_ = folder_path("pending");
};

TEST_F(RecordWriterTest, WritesALineWithEachField) {
  RecordWriter writer(path_, 0);
  writer.add({.event = "alloc",
              .kind = "device",
              .device = 1,
              .stream = 3,
              .address = 0xabc,
              .bytes = 10,
              .live = 20,
              .result = 2,
              .detail = "x"});
  writer.flush();
  EXPECT_THAT(text(), MatchesRegex("[0-9]+,[0-9]+,[0-9]+,alloc,device,1,3,0xabc,10,20,2,x\n"));
}

TEST_F(RecordWriterTest, KeepsAtMostAPage) {
  RecordWriter writer(path_, 0, pending_);
  for (int i = 0; i < 1000; ++i) writer.add({.event = "alloc"});
  EXPECT_GT(lines(), 900);
  EXPECT_LT(lines(), 1000);
  EXPECT_THAT(text(), EndsWith("\n")) << "whole lines alone";
  writer.flush();
  EXPECT_EQ(lines(), 1000);
}

TEST_F(RecordWriterTest, WritesAtOnceWhereItCannotHaveAPage) {
  for (const std::string& folder : {std::string(), std::string("/nowhere")}) {
    RecordWriter writer(path_, 0, folder);
    writer.add({.event = "alloc"});
  }
  EXPECT_EQ(lines(), 2);
}

TEST_F(RecordWriterTest, WritesAtOnceOnceFinished) {
  RecordWriter writer(path_, 0, pending_);
  writer.add({.event = "alloc"});
  EXPECT_EQ(lines(), 0);
  writer.finish();
  EXPECT_EQ(lines(), 1);
  EXPECT_TRUE(std::filesystem::is_empty(pending_)) << "nothing waits any more";
  writer.add({.event = "free"});
  EXPECT_EQ(lines(), 2);
}

TEST_F(RecordWriterTest, WritesFirstWhatTheProgramBeforeAnExecLeft) {
  RecordWriter before(path_, 0, pending_);
  before.add({.event = "alloc"});
  RecordWriter after(path_, 0, pending_);  // in the same process
  after.add({.event = "free"});
  EXPECT_THAT(text(), HasSubstr(",alloc,"));
  EXPECT_EQ(lines(), 1);
}

TEST_F(RecordWriterTest, NotesLinesThatItCannotWrite) {
  RecordWriter writer("/nowhere/record", 0, pending_);
  writer.add({.event = "alloc"});
  writer.finish();
  PendingLines* const page = map_pending_lines(pending_file(pending_), false);
  ASSERT_NE(page, nullptr) << "the page stays to tell";
  EXPECT_EQ(page->lost, 1U);
  unmap_pending_lines(page);
}

TEST_F(RecordWriterTest, KeepsHostileNamesInTheirField) {
  RecordWriter writer(path_, 0);
  writer.add({.event = "process", .detail = "a,b\n\"c\x01\xff"});
  writer.add({.event = "process", .detail = std::string(10'000, 'n')});
  writer.flush();
  EXPECT_THAT(text(), HasSubstr(",a_b__c__\n"));
  EXPECT_EQ(lines(), 2);
  EXPECT_LT(text().size(), 700U);
}

TEST_F(RecordWriterTest, LeavesTheParentsLinesToTheParent) {
  RecordWriter writer(path_, 0, pending_);
  writer.add({.event = "alloc"});
  const pid_t child = fork();
  if (child == 0) {
    const bool foreign = !writer.in_own_process();
    writer.start_again();
    const bool own = writer.in_own_process();
    writer.finish();
    _exit(foreign && own ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(lines(), 0);
  writer.flush();
  EXPECT_EQ(lines(), 1);
}

TEST_F(RecordWriterTest, PassesOverAFileThatIsNotThere) {
  RecordWriter none("", 0);
  RecordWriter nowhere("/nowhere/record", 0);
  for (RecordWriter* writer : {&none, &nowhere}) {
    writer->add({.event = "alloc"});
    writer->finish();
  }
  EXPECT_FALSE(std::filesystem::exists("/nowhere"));
}

// How far a move came when the process was killed.
class InterruptedMove : public RecordWriterTest, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(InterruptedMove, IsFinishedWithoutALineTwice) {
  const std::string lines_left = "10,7,7,alloc,device,0,0,0x10,1,1,0,\n12,7,7,free,device,0,0,0x10,1,0,0,\n";
  const std::string others = "9,8,8,alloc,device,0,0,0x10,1,1,0,\n";
  const std::string path = folder_.make("moved", others + lines_left.substr(0, GetParam()));
  PendingLines page;
  lines_left.copy(page.text.data(), lines_left.size());
  page.used = static_cast<std::uint32_t>(lines_left.size());
  page.moving = 1;
  const int file = open(path.c_str(), O_WRONLY | O_APPEND);
  page.move_to(file, path);
  close(file);
  EXPECT_EQ(page.lost, 0U);
  EXPECT_EQ(page.used, 0U);
  const std::string whole = contents_of(path);
  std::size_t alloc = 0, free = 0;
  std::istringstream text(whole);
  for (std::string line; std::getline(text, line);) {
    alloc += line == "10,7,7,alloc,device,0,0,0x10,1,1,0," ? 1 : 0;
    free += line == "12,7,7,free,device,0,0,0x10,1,0,0," ? 1 : 0;
  }
  EXPECT_EQ(alloc, 1U) << whole;
  EXPECT_EQ(free, 1U) << whole;
}

INSTANTIATE_TEST_SUITE_P(At, InterruptedMove, ::testing::Values(0, 20, 36, 50, 70));

}  // namespace
}  // namespace stowage::interpose
