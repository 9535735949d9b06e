// What all commands of the program have in common.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/tools/cli/run_stowage.h"

namespace stowage {
namespace {

using test::Result;
using test::run_stowage;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string tiny_plan = "plan --gpt 1x64 --batch 1 --sequence 8 --vocabulary 16";
const std::string tiny_csv = "id,lower,upper,size\na,0,1,4\n";

TEST(Stowage, AnOutputThatIsLostIsAnErrorOfEveryCommand) {
  const TemporaryFolder folder;
  const std::string csv = folder.make("buffers.csv", tiny_csv);
  for (const std::string& words :
       {tiny_plan, tiny_plan + " --json", tiny_plan + " --device-memory 1",
        std::string("plan --machine list"), "place " + csv, "replay --policy pytorch " + csv,
        "tokens encode " + csv + " --tokenizer bytes --output " + folder.file("shard"),
        "tokens train " + csv + " --vocabulary 257 --output " + folder.file("tokens"),
        "calibrate --quick --device simulated --output " + folder.file("machine"), std::string("--help"),
        std::string("plan --help")}) {
    EXPECT_EQ(run_stowage(words + " > /dev/full").code, 1) << words;
  }
}

TEST(Stowage, AnEmptyPathToWriteIsRefused) {
  const TemporaryFolder folder;
  const std::string csv = folder.make("buffers.csv", tiny_csv);
  for (const std::string& words :
       {tiny_plan + " --plan-json", tiny_plan + " --report", "place " + csv + " --output",
        "tokens encode " + csv + " --tokenizer bytes --output",
        "tokens train " + csv + " --vocabulary 257 --output",
        std::string("calibrate --quick --device simulated --output")}) {
    const Result result = run_stowage(words + " ''");
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_EQ(result.output, "stowage: " + words.substr(words.rfind(' ') + 1) +
                                 ": the path is empty; give one, or leave this out\n");
  }
  for (const char* flag : {"--record", "--report"}) {
    const Result result = run_stowage(std::string("run ") + flag + " '' -- true");
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.output, HasSubstr(std::string(flag) + ": the path is empty"));
  }
}

TEST(Stowage, OnePathForTwoFilesIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.file("file");
  const Result result = run_stowage(tiny_plan + " --plan-json " + file + " --report " + file);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.output, "stowage: --report " + file + ": --plan-json has the same path; name another\n");
  EXPECT_EQ(folder.entries(), 0U);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need terabytes of addresses
// With too few addresses the program is not even loaded, and with enough of them there is a plan.
TEST(Stowage, ALimitOnAddressSpaceIsNamedWhereMemoryRunsOut) {
  for (int kibibytes = 70'000; kibibytes <= 130'000; kibibytes += 5'000) {
    std::FILE* const pipe = ::popen(
        fmt::format("ulimit -v {}; {} plan --gpt 175b --device-memory 40GiB 2>&1", kibibytes, STOWAGE_PROGRAM)
            .c_str(),
        "r");
    ASSERT_NE(pipe, nullptr);
    Result result;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) result.output += static_cast<char>(c);
    const int status = ::pclose(pipe);
    ASSERT_TRUE(WIFEXITED(status)) << kibibytes;
    result.code = WEXITSTATUS(status);
    const bool is_loading = result.code == 127 || result.output.find("libgomp: ") < 2;
    if (is_loading) continue;
    EXPECT_TRUE(result.code == 0 || result.code == 2) << kibibytes << ": " << result.output;
    if (result.code == 2) {
      EXPECT_THAT(result.output, HasSubstr("`ulimit -v` (")) << kibibytes;
    }
  }
}
#endif

TEST(Stowage, AMistakeIsToldWithoutWhatATerminalObeys) {
  const Result result = run_stowage(tiny_plan + " --policy '\x1b[31mnone'");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("\\u001b[31mnone"));
  EXPECT_THAT(result.output, Not(HasSubstr("\x1b")));
}

TEST(Stowage, WritesFilesIntoDevicesAndTheOutputItself) {
  const TemporaryFolder folder;
  const std::string plan = tiny_plan + " --policy none";
  EXPECT_EQ(run_stowage(plan + " --plan-json /dev/null --report /dev/null").code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const Result full = run_stowage(plan + " --report /dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.output,
              HasSubstr("stowage: --report /dev/full: writing failed (No space left on device)"));
  const std::string out = folder.file("out");
  EXPECT_EQ(run_stowage(plan + " --plan-json /dev/stdout > " + out).code, 0);
  EXPECT_THAT(contents_of(out), HasSubstr("\"bound_by\""));
  EXPECT_THAT(contents_of(out), HasSubstr("lower bound"));
}

TEST(Stowage, WritesARecordIntoTheOutputItself) {
  const TemporaryFolder folder;
  const std::string out = folder.file("out");
  const Result result =
      run_stowage("run --record /dev/stdout --report /dev/null -- sh -c 'echo from the program' > " + out);
  const std::string text = contents_of(out);
  if (text.find("STOWAGE_CUDA=ON") != std::string::npos) GTEST_SKIP() << "built without CUDA";
  EXPECT_EQ(result.code, 0) << text;
  EXPECT_THAT(text, HasSubstr("# stowage record 1\ntime_ns,pid"));
  EXPECT_THAT(text, HasSubstr("\nfrom the program\n"));
  EXPECT_THAT(text, HasSubstr(",process,"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(Stowage, KeepsWhatMayNotBeWritten) {
  const TemporaryFolder folder;
  const std::string kept = folder.make("kept", tiny_csv);
  ::chmod(kept.c_str(), 0444);
  for (const std::string& words :
       {tiny_plan + " --plan-json ", tiny_plan + " --report ", "place " + kept + " --output ",
        "tokens encode " + kept + " --tokenizer bytes --output ",
        std::string("calibrate --quick --device simulated --output "),
        "run --report " + kept + " -- true --record ", "run --record " + kept + " -- true --report "}) {
    const Result result = run_stowage(words + kept);
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_THAT(result.output, HasSubstr(kept + ": cannot be written (Permission denied)"));
  }
  EXPECT_EQ(contents_of(kept), tiny_csv);
  EXPECT_EQ(folder.entries(), 1U);
}

// The plan's file is begun when the program waits for a reader of the report's.
TEST(Stowage, LeavesNoHalfOfAFileAtASignal) {
  const TemporaryFolder folder;
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl(STOWAGE_PROGRAM, "stowage", "plan", "--gpt", "1x64", "--plan-json", folder.file("plan").c_str(),
              "--report", fifo.c_str(), nullptr);
      ::_exit(127);
    }
    while (folder.entries() < 2 && ::waitpid(child, nullptr, WNOHANG) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(child, signal);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(folder.entries(), 1U) << signal;
  }
}

TEST(Stowage, NamesAnUnknownCommandAndTheNearest) {
  const Result result = run_stowage("plam --gpt 1x64");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.output,
            "stowage: plam: there is no such command; did you mean plan? stowage --help lists them\n");
}

TEST(Stowage, TakesTheLastOfARepeatedFlag) {
  const Result result = run_stowage(tiny_plan + " --batch 3 --batch 2 --json --json");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\"batch\": 2"));
}

TEST(Stowage, PrintsNoEscapesOfAFile) {
  const TemporaryFolder folder;
  const std::string csv = folder.make("buffers.csv",
                                      "\xc2\x9b"
                                      "31mid,lower,upper,size\n");
  const Result result = run_stowage("place " + csv);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("\\u009b31mid"));
  EXPECT_THAT(result.output, Not(HasSubstr("\xc2\x9b")));
}

TEST(Stowage, CutsLongWordsOfTheCommandLine) {
  const std::string word(5000, 'y');
  for (const std::string& words : {"plan " + word, "plan --gpt " + word, "plan --gpt gpt2 --machine " + word,
                                   "replay " + word, "plan --gpt gpt2 --device-memory " + word}) {
    const Result done = run_stowage(words);
    EXPECT_EQ(done.code, 2);
    EXPECT_LT(done.output.size(), 600U) << words.substr(0, 30);
  }
}

TEST(Stowage, PassesOverTheMarkOfUtf8) {
  const TemporaryFolder folder;
  const std::string csv = folder.make("buffers.csv", "\xef\xbb\xbf" + tiny_csv);
  EXPECT_EQ(run_stowage("place " + csv).code, 0);
  EXPECT_EQ(run_stowage("replay --policy pytorch " + csv).code, 0);
}

}  // namespace
}  // namespace stowage
