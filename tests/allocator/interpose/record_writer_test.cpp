#include "allocator/interpose/record_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

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

  TemporaryFolder folder_;
  std::string path_ = folder_.make("record", "");
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
  RecordWriter writer(path_, 0);
  for (int i = 0; i < 1000; ++i) writer.add({.event = "alloc"});
  EXPECT_GT(lines(), 900);
  EXPECT_LT(lines(), 1000);
  EXPECT_THAT(text(), EndsWith("\n")) << "whole lines alone";
  writer.flush();
  EXPECT_EQ(lines(), 1000);
}

TEST_F(RecordWriterTest, WritesAtOnceOnceFinished) {
  RecordWriter writer(path_, 0);
  writer.add({.event = "alloc"});
  EXPECT_EQ(lines(), 0);
  writer.finish();
  EXPECT_EQ(lines(), 1);
  writer.add({.event = "free"});
  EXPECT_EQ(lines(), 2);
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
  RecordWriter writer(path_, 0);
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

}  // namespace
}  // namespace stowage::interpose
