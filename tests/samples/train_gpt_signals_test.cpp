// train_gpt where the terminal, the reader of its output or the room for it goes away.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "stowage/checkpoint.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class TrainGptSignals : public ::testing::Test {
 protected:
  Words with(const Words& more) const {
    Words words = {"--data",   text_,  "--device",   "simulated", "--machine",        machine_,
                   "--policy", "none", "--layers",   "1",         "--width",          "16",
                   "--heads",  "2",    "--batch",    "4",         "--link-bandwidth", "unthrottled",
                   "--warmup", "2",    "--sequence", "8"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Through a shell that does `redirection` first.
  ProgramResult redirected(const std::string& redirection, const Words& more) const {
    Words words = {"-c", "exec \"$0\" \"$@\" " + redirection, STOWAGE_TRAIN_GPT};
    for (const std::string& word : with(more)) words.push_back(word);
    return run_program("/bin/sh", words);
  }
  // Stopped as soon as it says that it does `what`: at once, by name, and with nothing left of what it had
  // opened.
  void expect_abandoned(const std::string& what, const Words& more, int signal,
                        const std::string& name) const {
    const std::size_t entries = folder_.entries();
    Words words = with({"--log", folder_.file("log"), "--report", folder_.file("page"), "--weights",
                        folder_.file("weights"), "--export", folder_.file("model"), "--checkpoint",
                        folder_.file("saved")});
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_train_gpt(words, what, signal);
    EXPECT_EQ(result.exit_code, 130) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("train_gpt: stopped by " + name + " while " + what));
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    EXPECT_THAT(result.output, ::testing::Not(HasSubstr("\nneed ")));  // that is, before the plan
    EXPECT_EQ(folder_.entries(), entries);
  }
  // A long run that `signal` stops saves and writes its page.
  void expect_saved(int signal, const std::string& name) const {
    const std::string dir = folder_.file("saved" + std::to_string(signal)), page = folder_.file("page");
    const ProgramResult result = run_train_gpt(
        with({"--steps", "1000000", "--checkpoint", dir, "--report", page}), "step       1/", signal);
    EXPECT_EQ(result.exit_code, 130) << result.errors;
    EXPECT_FALSE(list_checkpoints(dir).empty());
    EXPECT_THAT(contents_of(page), HasSubstr("by " + name));
    EXPECT_THAT(result.output, HasSubstr("stopped by " + name + "; what was asked for"));
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", std::string(500, 'a') + std::string(500, 'b'));
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32}));
};

TEST_F(TrainGptSignals, AClosedTerminalSaves) { expect_saved(SIGHUP, "SIGHUP (its terminal was closed)"); }

TEST_F(TrainGptSignals, AnEndThatIsAskedForSaves) { expect_saved(SIGTERM, "SIGTERM"); }

// What takes over a second before the first step says what it is, and ends in its midst.
TEST_F(TrainGptSignals, ReadingEndsAtOnce) {
  const std::string fifo = folder_.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int writer = ::open(fifo.c_str(), O_RDWR | O_CLOEXEC);  // which never writes
  expect_abandoned("reading", {"--data", fifo}, SIGINT, "Ctrl-C");
  ::close(writer);
}

TEST_F(TrainGptSignals, TokenisingEndsAtOnce) {
  std::string text;
  while (text.size() < 40U << 20U) text += "Of the quick brown fox, which jumped over 12345 lazy dogs.\n";
  expect_abandoned(
      "tokenising",
      {"--data", folder_.make("long", text), "--tokenizer", STOWAGE_ROOT "/tests/fixtures/tokens/bert"},
      SIGTERM, "SIGTERM");
}

TEST_F(TrainGptSignals, PlanningEndsAtOnce) {
  expect_abandoned("planning",
                   {"--policy", "auto", "--layers", "48", "--width", "256", "--heads", "4", "--batch", "16",
                    "--micro-batches", "16", "--sequence", "64", "--device-memory", "200MiB"},
                   SIGINT, "Ctrl-C");
}

TEST_F(TrainGptSignals, UnlessThatIsIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);  // as nohup does; it goes on to the program
  const ProgramResult result = run_train_gpt(with({"--steps", "20"}), "step 1/20", SIGHUP);
  std::signal(SIGHUP, before);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("step 20/20"));
}

// The lines of every tenth of the run go nowhere: the first of them stops it.
TEST_F(TrainGptSignals, AReaderThatIsGoneSaves) {
  const std::string dir = folder_.file("saved");
  const ProgramResult result =
      run_train_gpt(with({"--steps", "3000", "--checkpoint", dir, "--weights", folder_.file("weights")}),
                    "step    1/", SIGPIPE);
  EXPECT_EQ(result.exit_code, 130) << result.errors;
  ASSERT_FALSE(list_checkpoints(dir).empty());
  EXPECT_LT(list_checkpoints(dir).front().step, 3000U);
  EXPECT_TRUE(std::filesystem::exists(folder_.file("weights")));
}

TEST_F(TrainGptSignals, ASignalThatEndsItAtOnceLeavesNoHalfOfAFile) {
  const ProgramResult result = run_train_gpt(
      with({"--steps", "1000000", "--weights", folder_.file("weights"), "--export", folder_.file("model")}),
      "step       1/", SIGQUIT);
  EXPECT_EQ(result.exit_code, 128 + SIGQUIT) << result.errors;
  EXPECT_EQ(folder_.entries(), 2U) << "the text and the machine's file";
}

TEST_F(TrainGptSignals, OutputThatIsLostIsNoSuccess) {
  const std::string page = folder_.file("page");
  const ProgramResult full = redirected("> /dev/full", {"--steps", "1", "--report", page});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.errors, HasSubstr("standard output: writing failed"));
  EXPECT_TRUE(std::filesystem::exists(page));
}

// Lines for people do not end in the first file that is opened.
TEST_F(TrainGptSignals, AClosedOutputIsNoFile) {
  const std::string weights = folder_.file("weights"), whole = folder_.file("whole");
  well(redirected(">&- 2>&- <&-", {"--steps", "1", "--trace", folder_.file("first"), "--weights", weights}));
  well(run_train_gpt(with({"--steps", "1", "--weights", whole})));
  EXPECT_EQ(contents_of(weights), contents_of(whole));
}

// A limit on files, as `ulimit -f` sets it, is no signal that kills.
TEST_F(TrainGptSignals, AFileThatMayNotGrowIsAnError) {
  const Words words = {"-c", "ulimit -f 8; exec \"$0\" \"$@\"", STOWAGE_TRAIN_GPT};
  Words all = words;
  for (const std::string& word : with({"--steps", "1", "--weights", folder_.file("weights")}))
    all.push_back(word);
  const ProgramResult result = run_program("/bin/sh", all);
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("--weights " + folder_.file("weights") + ": writing failed"));
  EXPECT_EQ(folder_.entries(), 2U);
}

}  // namespace
}  // namespace stowage::samples
