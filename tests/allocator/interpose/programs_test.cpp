// Programs under `stowage run`, over the fakes: every call is caught, and the bytes are those that were asked
// for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "tests/allocator/interpose/interposed_programs.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string driver = INTERPOSED_DRIVER_PROGRAM;

TEST_F(InterposedPrograms, WithTheStaticRuntimeAreCaught) {
  expect_all_caught(run(INTERPOSED_STATIC_PROGRAM));
  expect_all_freed();
  EXPECT_EQ(caught(record_).size(), 5U);
}

TEST_F(InterposedPrograms, WithTheSharedRuntimeAreCaught) {
  expect_all_caught(
      run(INTERPOSED_SHARED_PROGRAM, "", "LD_LIBRARY_PATH=" STOWAGE_FAKE_RUNTIME_DIR ":$LD_LIBRARY_PATH"));
  expect_all_freed();
  EXPECT_EQ(caught(record_).size(), 5U);
}

TEST_F(InterposedPrograms, OfTheDriverAreCaught) {
  expect_all_caught(run(driver + " every_kind"));
  expect_all_freed();
  EXPECT_EQ(caught(record_).size(), 5U);
}

TEST_F(InterposedPrograms, OfVirtualMemoryAreCaught) {
  expect_all_caught(run(driver + " virtual_memory", "--limit 64MiB"));
  expect_all_freed();
}

TEST_F(InterposedPrograms, InLibrariesBoundDeeplyAreCaught) {
  for (const char* const plugin : {INTERPOSED_LINKED_PLUGIN, INTERPOSED_LOOKING_PLUGIN}) {
    expect_all_caught(run(driver + " deep_plugin " + plugin));
    EXPECT_EQ(caught(record_), (BytesByKind{{"device", 700}}));
  }
}

TEST_F(InterposedPrograms, InLibrariesOpenedOtherwiseAreCaughtWithoutTheAuditor) {
  for (const char* const plugin : {INTERPOSED_LINKED_PLUGIN, INTERPOSED_LOOKING_PLUGIN}) {
    expect_all_caught(run("env LD_AUDIT= " + driver + " plugin " + plugin));
  }
}

// What catches them is the auditor: the preloaded library alone does not.
TEST_F(InterposedPrograms, InLibrariesBoundDeeplyAreMissedWithoutTheAuditor) {
  const Ran ran = run("env LD_AUDIT= " + driver + " deep_plugin " + INTERPOSED_LINKED_PLUGIN);
  EXPECT_EQ(code(ran), 0);
  EXPECT_TRUE(caught(record_).empty());
}

TEST_F(InterposedPrograms, WithTheStaticRuntimeAreCaughtWithoutTheAuditor) {
  expect_all_caught(run(std::string("env LD_AUDIT= ") + INTERPOSED_STATIC_PROGRAM));
}

TEST_F(InterposedPrograms, ThatForkAreCaughtInBothProcesses) {
  expect_all_caught(run(driver + " fork"));
  std::map<Bytes, int> by_bytes;
  for (const auto& [id, process] : record_.processes) {
    if (process.kinds.contains("device")) ++by_bytes[process.kinds.at("device").bytes];
  }
  EXPECT_EQ(by_bytes, (std::map<Bytes, int>{{1000, 1}, {2000, 1}}))
      << "the child starts with an empty account";
  expect_all_freed();
}

TEST_F(InterposedPrograms, ThatShareMemoryAreCaughtInBoth) {
  expect_all_caught(run(driver + " export"));
  EXPECT_EQ(record_.exports, 1U);
  EXPECT_EQ(record_.opens, 1U);
  expect_all_freed();
}

TEST_F(InterposedPrograms, SeeACardOfTheLimitsSize) {
  expect_all_caught(run(driver + " limit 1000000", "--limit 1000000"));
  EXPECT_THAT(record_text(), HasSubstr(",refused,device,0,0,0x0,500001,500000,"));
  expect_all_freed();
}

TEST_F(InterposedPrograms, SeeTheWholeCardWithoutALimit) {
  const std::string plain = shell(driver + " info").output;
  EXPECT_THAT(plain, HasSubstr("4294967296 4294967296"));
  EXPECT_EQ(run(driver + " info").output, plain);
}

TEST_F(InterposedPrograms, ThatCaptureGraphsKeepTheirAccount) {
  expect_all_caught(run(driver + " capture"));
  EXPECT_THAT(record_text(), HasSubstr(",free_node,"));
  for (const auto& [id, process] : record_.processes) {
    for (const auto& [device, card] : process.cards) EXPECT_EQ(card.peak, 100U);
  }
}

TEST_F(InterposedPrograms, LoseWhatContextsTakeAlong) {
  expect_all_caught(run(driver + " contexts 1000000", "--limit 1000000"));
  expect_all_freed();
}

TEST_F(InterposedPrograms, OfSeveralThreadsAreCaught) {
  expect_all_caught(run(driver + " threads"));
  expect_all_freed();
}

TEST_F(InterposedPrograms, HaveTheirStreamsToldApart) {
  expect_all_caught(run(driver + " streams"));
  EXPECT_THAT(record_text(), HasSubstr(",alloc,async,0,3,"));
  EXPECT_THAT(record_text(), HasSubstr(",alloc,async,0,4,"));
}

TEST_F(InterposedPrograms, KeepWhatIsNotReplaced) {
  const Ran ran = run(driver + " lookups");
  EXPECT_EQ(code(ran), 0);
  EXPECT_EQ(record_.missed, (std::map<std::string, int>{{"cuMemAlloc", 1}}));
}

TEST_F(InterposedPrograms, ThatStartOthersWithoutTheLibrariesAreReported) {
  const std::string report = folder_.file("report.txt");
  expect_all_caught(run(driver + " starts", "--report " + report));
  EXPECT_EQ(record_.unwatched, (std::map<std::string, int>{{"true", 3}}));
  EXPECT_THAT(contents_of(report),
              HasSubstr("started in an environment without the libraries, so neither limited nor recorded: "
                        "true (3 times)\n"));
  run("env -i /bin/true");
  EXPECT_EQ(record_.unwatched, (std::map<std::string, int>{{"true", 1}}));
}

TEST_F(InterposedPrograms, ThatDropPrivilegesAreReported) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has privileges to drop";
  const std::string report = folder_.file("report.txt");
  const Ran ran = run(driver + " drop_privileges", "--report " + report);
  EXPECT_EQ(code(ran), 0) << ran.output;
  EXPECT_EQ(caught(record_), (BytesByKind{{"device", 100}}));
  EXPECT_EQ(record_.unrecorded.size(), 1U);
  EXPECT_THAT(contents_of(report),
              HasSubstr("became a user who cannot write the record: interposed_driver_program;"));
}

TEST_F(InterposedPrograms, ThatCrashLeaveARecord) {
  const Ran ran = run(driver + " crash", "--report " + folder_.file("report.txt"));
  EXPECT_TRUE(WIFSIGNALED(ran.status) && WTERMSIG(ran.status) == SIGABRT) << "ends by the program's signal";
  EXPECT_EQ(asked_for(ran.output).at("device"), 8000U);
  EXPECT_EQ(caught(record_).at("device"), 8000U);
  EXPECT_THAT(contents_of(folder_.file("report.txt")), HasSubstr("ended by signal 6"));
}

TEST_F(InterposedPrograms, ThatLeaveAtOnceAreWholeInTheRecord) {
  const Ran ran = run(driver + " leave_at_once");
  EXPECT_EQ(code(ran), 7) << "the program's exit code";
  EXPECT_EQ(caught(record_), asked_for(ran.output));
}

TEST_F(InterposedPrograms, AreReportedOnOnePage) {
  const std::string page = folder_.file("report.html");
  EXPECT_EQ(code(run(driver + " every_kind '<script>'", "--limit 1MiB --report " + page)), 0);
  const std::string text = contents_of(page);
  EXPECT_THAT(text, HasSubstr("memory over time"));
  EXPECT_THAT(text, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_THAT(text, HasSubstr("<td>managed<td>1<td>2.93 KiB"));
  EXPECT_THAT(text, Not(HasSubstr("0 calls were caught")));
}

TEST_F(InterposedPrograms, WithoutCudaAreSaidToBeSo) {
  const Ran ran = shell(STOWAGE_PROGRAM " run -- true 2>&1");
  EXPECT_EQ(code(ran), 0);
  EXPECT_THAT(ran.output, HasSubstr("stowage: 0 calls were caught: the libraries were in 1 process"));
  EXPECT_EQ(shell(STOWAGE_PROGRAM " run -- " + driver + " every_kind 2>&1 >/dev/null").output, "")
      << "nothing is said of others";
  const Ran reported = shell(STOWAGE_PROGRAM " run --report - -- true 2>&1");
  EXPECT_THAT(reported.output, HasSubstr("0 calls were caught"));
}

// Each "name version flags" that the toolkit's runtime asked the driver for.
std::string queries_of_the_real_runtime(const TemporaryFolder& folder) {
  const std::string path = folder.file("queries");
  EXPECT_EQ(code(shell("STOWAGE_FAKE_CUDA_QUERIES=" + path + ' ' + INTERPOSED_REAL_RUNTIME_PROGRAM +
                       " >/dev/null")),
            0);
  return path;
}

TEST_F(InterposedPrograms, GetTheFunctionsAndVersionsThatTheRealRuntimeAsksFor) {
  const std::string queries = queries_of_the_real_runtime(folder_);
  const std::string plain = shell(INTERPOSED_QUERY_PROGRAM " < " + queries).output;
  const std::string under =
      shell("exec 2>/dev/null; " STOWAGE_PROGRAM " run -- " INTERPOSED_QUERY_PROGRAM " < " + queries).output;
  std::istringstream plain_lines(plain), under_lines(under);
  std::string expected, got;
  int asked = 0;
  std::set<std::string> replaced;
  while (std::getline(plain_lines, expected)) {
    ASSERT_TRUE(std::getline(under_lines, got));
    ++asked;
    const std::string library = " libstowage_preload.so";
    if (got.ends_with(library)) {
      got = got.substr(0, got.size() - library.size()) + " libcuda.so.1";
      replaced.insert(got.substr(0, got.find(' ', got.find(' ') + 1)));
    }
    EXPECT_EQ(got, expected) << "the same answer, under the same symbol";
  }
  EXPECT_FALSE(std::getline(under_lines, got));
  EXPECT_GT(asked, 400) << "the real runtime asks for all it may need at once";
  for (const char* const name :
       {"cuMemAlloc 3020", "cuMemAllocPitch 3020", "cuMemAllocManaged 6000", "cuMemAllocAsync 11020",
        "cuMemAllocFromPoolAsync 11020", "cuMemFree 3020", "cuMemFreeAsync 11020", "cuMemGetInfo 3020",
        "cuDeviceTotalMem 3020", "cuGetProcAddress 11030", "cuGetProcAddress 12000",
        "cuIpcGetMemHandle 4010"}) {
    EXPECT_TRUE(replaced.contains(name)) << name;
  }
}

TEST_F(InterposedPrograms, WithTheRealRuntimeGetAsFarAsWithout) {
  const std::string plain = shell(INTERPOSED_REAL_RUNTIME_PROGRAM).output;
  EXPECT_EQ(run(INTERPOSED_REAL_RUNTIME_PROGRAM, "", "exec 2>/dev/null;").output, plain);
}

TEST_F(InterposedPrograms, PassSignalsOnAndEndByThem) {
  const std::string ready = folder_.file("ready");
  const Ran ran = shell("exec 2>/dev/null; " STOWAGE_PROGRAM " run -- sh -c 'trap \"exit 5\" TERM; : > " +
                        ready + "; while :; do sleep 0.02; done' & while [ ! -e " + ready +
                        " ]; do sleep 0.02; done; kill -TERM $!; wait $!; echo code $?");
  EXPECT_EQ(ran.output, "code 5\n");
}

TEST_F(InterposedPrograms, CarryNoNameOfCxxInTheirNamespace) {
  const std::string names = shell("nm -D --defined-only " STOWAGE_PRELOAD).output;
  EXPECT_THAT(names, HasSubstr(" T cuMemAlloc_v2\n"));
  EXPECT_THAT(names, Not(HasSubstr("_Z")));
  EXPECT_THAT(names, Not(HasSubstr("@@"))) << "no symbol version of its own";
}

}  // namespace
}  // namespace stowage
