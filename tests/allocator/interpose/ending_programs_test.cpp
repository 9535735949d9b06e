// Programs that crash, are killed, or replace themselves, under `stowage run`: each call that returned is in
// the record, or a line says that some may be missing.
#include <unistd.h>

#include <ostream>

#include "tests/allocator/interpose/interposed_programs.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string ender = INTERPOSED_ENDING_PROGRAM;
const std::string may_be_missing = "some calls may be missing: ";

struct Ending {
  const char* name;
  const char* words;  // of the program
  std::size_t images = 1;
  std::size_t without_end = 0;
};

void PrintTo(const Ending& ending, std::ostream* out) { *out << ending.words; }

class EndingPrograms : public InterposedPrograms, public ::testing::WithParamInterface<Ending> {};

TEST_P(EndingPrograms, HaveEachCallCounted) {
  const Ending& ending = GetParam();
  const std::string report = folder_.file("report.txt");
  const Ran ran = run(ender + ' ' + ending.words, "--report " + report);
  EXPECT_FALSE(asked_for(ran.output).empty()) << ran.output;
  EXPECT_EQ(caught(record_), asked_for(ran.output));
  EXPECT_EQ(record_.processes.size(), ending.images);
  EXPECT_EQ(record_.without_end(), ending.without_end);
  EXPECT_EQ(record_.unreadable, 0U);
  const auto told = HasSubstr(may_be_missing);
  EXPECT_EQ(::testing::Matches(told)(contents_of(report)), ending.without_end > 0) << contents_of(report);
}

INSTANTIATE_TEST_SUITE_P(
    By, EndingPrograms,
    ::testing::Values(Ending{"Segv", "5 segv", 1, 1}, Ending{"Kill", "5 kill", 1, 1},
                      Ending{"OneCall", "1 kill", 1, 1}, Ending{"KillAfterManyCalls", "1000 kill", 1, 1},
                      Ending{"Abort", "5 abort", 1, 1}, Ending{"Trap", "5 trap", 1, 1},
                      Ending{"Term", "5 term", 1, 1}, Ending{"Exit", "5 _exit"},
                      Ending{"ExitOfTheKernel", "5 exit_group", 1, 1}, Ending{"QuickExit", "5 quick_exit"},
                      Ending{"ExitInAHandler", "5 exit_at_segv segv"},
                      Ending{"Threads", "threads kill", 1, 1}, Ending{"Exec", "5 exec 7", 2, 0},
                      Ending{"SixExecs", "1 exec 2 exec 3 exec 4 exec 5 exec 6 exec 7", 7, 0},
                      Ending{"ExecsWithoutCalls", "3 exec exec exec 2", 4, 0},
                      Ending{"ExecAndKill", "100 exec 100 kill", 2, 1},
                      Ending{"ExecWithoutTheLibraries", "5 exec_bare", 1, 1},
                      Ending{"ChildKilled", "3 fork 4 kill parent 5", 2, 1},
                      Ending{"ChildExit", "3 fork 4 _exit parent 5", 2, 0},
                      Ending{"ChildAndParentKilled", "3 fork 4 kill parent 5 kill", 2, 2},
                      Ending{"ChildThatExecs", "3 fork 4 exec 5 kill parent 6", 3, 1},
                      Ending{"ThreeChildren", "1 fork 2 kill parent fork 3 segv parent fork 4 parent 5", 4,
                             2},
                      Ending{"Grandchild", "1 fork 2 fork 3 kill parent 4 kill", 3, 3},
                      Ending{"ClosedFiles", "3 close_all 5 kill", 1, 1},
                      Ending{"ClosedFilesAndManyCalls", "close_all 500 segv", 1, 1},
                      Ending{"ClosedFilesAndExec",
                             "close_all 3 exec close_all 500 fork close_all 4 kill parent abort", 3, 2}),
    [](const auto& ending) { return std::string(ending.param.name); });

// A process that goes on writes its lines itself, when nobody reads them any more.
TEST_F(EndingPrograms, AreSaidToLackCallsWhereAProcessGoesOn) {
  const std::string report = folder_.file("report.txt");
  const Ran ran = run(ender + " 3 spawn 4 sleep 5 parent kill", "--report " + report);
  EXPECT_EQ(asked_for(ran.output), (BytesByKind{{"device", 12 * 16}}));
  EXPECT_THAT(contents_of(report),
              HasSubstr(may_be_missing + "1 process went on when the program had ended"));
}

TEST_F(EndingPrograms, HaveTheCallsOfChildrenCountedThatNobodyWaitedFor) {
  const std::string report = folder_.file("report.txt");
  const Ran ran = run(ender + " 3 spawn 4 kill parent 5", "--report " + report);
  if (record_.images.size() == 2) {  // the child had ended by then
    EXPECT_EQ(caught(record_), asked_for(ran.output));
  }
  EXPECT_THAT(contents_of(report), HasSubstr(may_be_missing));
}

TEST_F(EndingPrograms, AreSaidToLackCallsWhereTheRecordCannotBeWritten) {
  const std::string report = folder_.file("report.txt");
  const Ran ran = run(ender + " 3 no_descriptors 500 kill", "--report " + report + " 2>/dev/null");
  EXPECT_LT(caught(record_)["device"], asked_for(ran.output)["device"]);
  EXPECT_THAT(contents_of(report), HasSubstr(may_be_missing + "1 process could not write all lines"));
}

TEST_F(EndingPrograms, AreSaidToLackCallsWhereTheyLeaveTheFolders) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can";
  const std::string report = folder_.file("report.txt");
  for (const char* const words : {" 3 no_folders 5", " 3 no_folders fork 5 parent kill"}) {
    run(ender + words, "--report " + report + " 2>/dev/null");
    EXPECT_THAT(contents_of(report), HasSubstr(may_be_missing + "1 process could not write all lines"));
  }
}

TEST_F(EndingPrograms, AreToldFromThoseThatAllocateNothing) {
  const Ran ran =
      shell(STOWAGE_PROGRAM " run --record " + record_path_ + " -- " + ender + " 1 kill 2>&1 >/dev/null");
  EXPECT_THAT(ran.output, Not(HasSubstr("0 calls")));
  EXPECT_THAT(ran.output, HasSubstr(may_be_missing + "1 process ended without a last line"));
  EXPECT_THAT(shell(STOWAGE_PROGRAM " run -- " + ender + " 1 kill 2>&1 >/dev/null").output,
              Not(HasSubstr("stowage:")))
      << "nobody asked";
}

TEST_F(EndingPrograms, LeaveNoFileBehind) {
  const std::string temporary = folder_.file("tmp");
  std::filesystem::create_directory(temporary);
  run(ender + " 3 fork 4 kill parent kill", "", "TMPDIR=" + temporary);
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
}

// Programs of a `stowage run` inside of another have the smaller limits of both.
TEST_F(EndingPrograms, OfAnInnerRunKeepTheOuterLimit) {
  const std::string info = std::string(INTERPOSED_DRIVER_PROGRAM) + " info";
  const auto shown = [&](const std::string& outer, const std::string& inner) {
    return shell("exec 2>/dev/null; " STOWAGE_PROGRAM " run " + outer + " -- " STOWAGE_PROGRAM " run " +
                 inner + " -- " + info)
        .output;
  };
  EXPECT_EQ(shown("--limit 1000000", "--limit 2000000"), "1000000 1000000 1000000\n");
  EXPECT_EQ(shown("--limit 2000000", "--limit 1000000"), "1000000 1000000 1000000\n");
  EXPECT_EQ(shown("--limit 1000000", ""), "1000000 1000000 1000000\n");
  EXPECT_EQ(shown("", "--limit 1000000"), "1000000 1000000 1000000\n");
}

TEST_F(EndingPrograms, OfAnInnerRunSpillNoMoreThanBothAllow) {
  const auto spilled = [&](const std::string& outer, const std::string& inner) {
    const std::string spiller =
        std::string(INTERPOSED_SPILL_PROGRAM) + " overflow mapped " + std::to_string(20_MiB);
    return code(run(STOWAGE_PROGRAM " run " + inner + " -- " + spiller, "--limit 20MiB " + outer));
  };
  EXPECT_EQ(spilled("--spill 8MiB", ""), 0);
  EXPECT_EQ(spilled("--spill 4MiB", "--spill 8MiB"), 3);
  EXPECT_EQ(spilled("--spill 8MiB", "--spill 4MiB"), 3);
}

TEST_F(EndingPrograms, OfAnInnerRunAreSaidToBeInItsRecord) {
  const Ran ran = shell(STOWAGE_PROGRAM " run --report - -- " STOWAGE_PROGRAM " run -- " + ender + " 1 2>&1");
  EXPECT_THAT(ran.output, HasSubstr("started with another record, by a stowage run inside of this one: "
                                    "interposed_ending_program"));
}

}  // namespace
}  // namespace stowage
