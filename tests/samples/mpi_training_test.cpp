// Ranks that are processes, from end to end: as many as one likes leave the bits of one, go on from each
// other's checkpoints, and end together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/checkpoint.h"
#include "stowage/token_shards.h"
#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/mpi_runs.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
class MpiRuns : public ::testing::Test {
 protected:
  Words training(const std::string& program, const Words& more) const {
    Words words = {program,       "--data",     text_, "--device",          "simulated", "--machine",
                   machine_,      "--layers",   "1",   "--width",           "32",        "--heads",
                   "2",           "--sequence", "16",  "--batch",           "8",         "--micro-batches",
                   "4",           "--steps",    "6",   "--gradient-groups", "4",         "--link-bandwidth",
                   "unthrottled", "--warmup",   "2",   "--dropout",         "0.1",       "--clip",
                   "2",           "--threads",  "2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // `when` and what follows: as run_program's, of one rank.
  ProgramResult run(const std::string& program, int ranks, const Words& more, const Words& launch = {},
                    const std::string& when = "", int signal = SIGINT, int receiver = 0) const {
    Words words = launcher(ranks, launch);
    const Words train = training(program, more);
    words.insert(words.end(), train.begin(), train.end());
    return run_program(STOWAGE_MPIRUN, words, when, signal,
                       [=](pid_t mpirun) { return process_of(receiver, mpirun); });
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", documents());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

// The parameter is the program.
class MpiTraining : public MpiRuns, public ::testing::WithParamInterface<const char*> {
 protected:
  // Weights and numbers.
  std::string result_of(int ranks, Words more) const {
    const std::string weights = folder_.file("weights"), log = folder_.file("log");
    more.insert(more.end(), {"--weights", weights, "--log", log});
    well(run(GetParam(), ranks, more));
    return numbers_in(log) + contents_of(weights);
  }
  // The smallest --device-memory.
  std::string minimum(int ranks) const {
    const std::string told = well(run(GetParam(), ranks, {"--plan-only"})).output;
    const std::size_t at = told.find('(', told.find("\nminimum"));
    return told.substr(at + 1, told.find(' ', at) - at - 1);
  }
};

TEST_P(MpiTraining, LeavesTheBitsOfOneDevice) {
  const std::string alone = result_of(1, {});
  EXPECT_THAT(alone, HasSubstr("\n6 "));
  EXPECT_TRUE(result_of(2, {"--policy", "zero-infinity"}) == alone);
  EXPECT_TRUE(result_of(4, {"--device-memory", minimum(4)}) == alone);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(lines_with(contents_of(folder_.file("log")), {fmt::format("{{\"rank\": {},", rank)}), 1);
}

// What rank 0 writes has whole values: checkpoints, evaluations and model files.
TEST_P(MpiTraining, GoesOnFromTheCheckpointOfAnyNumberOfRanks) {
  const std::string of_four = folder_.file("four"), of_one = folder_.file("one");
  const Words saves = {"--checkpoint-every", "2", "--keep", "9", "--evaluate-every", "3"};
  const auto with = [&](Words words, const std::string& folder) {
    words.insert(words.end(), {"--checkpoint", folder});
    return words;
  };
  const std::string whole = result_of(4, with(saves, of_four));
  EXPECT_TRUE(result_of(1, with(saves, of_one)) == whole);
  const auto checkpoints = list_checkpoints(of_four);
  ASSERT_EQ(checkpoints.size(), 3U);
  for (std::size_t i = 0; i < checkpoints.size(); ++i)
    EXPECT_TRUE(contents_of(checkpoints[i].path + "/tensors.bin") ==
                contents_of(list_checkpoints(of_one)[i].path + "/tensors.bin"));
  const std::string weights = folder_.file("weights");
  for (const int ranks : {1, 4}) {
    const std::string start = list_checkpoints(ranks == 1 ? of_four : of_one)[1].path;
    well(run(GetParam(), ranks, {"--evaluate-every", "3", "--resume", start, "--weights", weights}));
    EXPECT_TRUE(whole.ends_with(contents_of(weights))) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, MpiTraining, ::testing::Values(STOWAGE_TRAIN_GPT, STOWAGE_TRAIN_BERT),
                         [](const auto& program) {
                           const std::string path = program.param;
                           return path.substr(path.rfind('/') + 1);
                         });

TEST_F(MpiRuns, WhatIsWrongIsToldOnce) {
  const auto told = [&](int ranks, const Words& more, const std::vector<std::string>& parts) {
    expect_told_once(run(STOWAGE_TRAIN_GPT, ranks, more), parts);
  };
  told(2, {"--devices", "4"}, {"--devices 4 with 2 processes"});
  told(2, {"--weights", "/nowhere/weights"}, {"--weights /nowhere/weights"});
  told(4, {"--device-memory", "1100000"}, {"--device-memory 1100000: too small"});
}

// Rank 1 of another seed.
// Each rank reads its own samples of a batch and has token 0 for the others.
TEST_F(MpiRuns, OfShardsEachRankReadsWhatItNeeds) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 3000; ++i) tokens.push_back(i * i % 251 + 1);
  TokenShardWriter writer(folder_.file("shard.bin"), ShardVersion::two_bytes);
  writer.append(tokens);
  writer.commit();
  const std::string log = folder_.file("log"), weights = folder_.file("weights");
  const auto result = [&](int ranks) {
    well(run(STOWAGE_TRAIN_GPT, ranks,
             {"--data", folder_.file("shard.bin"), "--steps", "3", "--log", log, "--weights", weights}));
    return numbers_in(log) + contents_of(weights);
  };
  const std::string alone = result(1);
  EXPECT_THAT(alone, HasSubstr("\n3 "));
  for (const int ranks : {2, 4}) EXPECT_TRUE(result(ranks) == alone) << ranks;
}

TEST_F(MpiRuns, RanksOfOtherRunsAreRefused) {
  Words words = launcher(1);
  for (const std::string& word : training(STOWAGE_TRAIN_GPT, {})) words.push_back(word);
  words.insert(words.end(), {":", "-n", "1"});
  for (const std::string& word : training(STOWAGE_TRAIN_GPT, {"--seed", "2"})) words.push_back(word);
  expect_told_once(run_program(STOWAGE_MPIRUN, words),
                   {"train_gpt: rank 1: ", "differs from that of rank 0"});
}

TEST_F(MpiRuns, MpiIsLoadedWhereThereAreSeveralProcessesAlone) {
  const Words nowhere = {"-x", "STOWAGE_MPI_MODULE=/nowhere/libstowage_mpi.so"};
  well(run(STOWAGE_TRAIN_GPT, 1, {"--steps", "1"}, nowhere));
  const ProgramResult result = run(STOWAGE_TRAIN_GPT, 2, {"--steps", "1"}, nowhere);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors,
              HasSubstr("the MPI module is not there (looked for /nowhere/libstowage_mpi.so): install"));
}

// They would train alone, each for itself.
TEST_F(MpiRuns, ProcessesThatMpiDoesNotKnowAreRefused) {
  Words words = {"PMI_RANK=0", "PMI_SIZE=2", STOWAGE_TRAIN_GPT};
  for (const std::string& word : training("", {}))
    if (!word.empty()) words.push_back(word);
  expect_told_once(run_program("/usr/bin/env", words),
                   {"mpiexec has started 2 processes, of which MPI knows 1: start them by the mpirun"});
}

TEST_F(MpiRuns, ASignalToOneStopsAllAtOneStep) {
  const std::string dir = folder_.file("saved");
  const ProgramResult stopped = run(STOWAGE_TRAIN_GPT, 4, {"--steps", "100000", "--checkpoint", dir}, {},
                                    "step      1/100000", SIGINT, 2);
  EXPECT_EQ(stopped.exit_code, 130) << stopped.errors;
  EXPECT_THAT(stopped.errors, Not(HasSubstr("train_gpt:")));
  EXPECT_THAT(stopped.output, HasSubstr("stopped by Ctrl-C; what was asked for is written"));
  ASSERT_FALSE(list_checkpoints(dir).empty());
  // It goes on as if nobody had stopped it.
  const std::uint64_t step = list_checkpoints(dir).front().step;
  const Words to_end = {"--steps", std::to_string(step + 2), "--learning-rate", "0.001", "--schedule",
                        "constant"};
  const auto weights_of = [&](int ranks, Words more) {
    more.insert(more.end(), to_end.begin(), to_end.end());
    more.insert(more.end(), {"--weights", folder_.file("weights")});
    well(run(STOWAGE_TRAIN_GPT, ranks, more));
    return contents_of(folder_.file("weights"));
  };
  const std::string path = list_checkpoints(dir).front().path;
  EXPECT_TRUE(weights_of(1, {"--resume", path}) == weights_of(4, {"--resume", path}));
}

// More of them: bench/checkpoint/run_ranks.
TEST_F(MpiRuns, ARankThatDiesIsNamedByTheOthersWhichEnd) {
  for (const int victim : {0, 2}) {
    const std::string dir = folder_.file(fmt::format("saved{}", victim));
    const ProgramResult killed =
        run(STOWAGE_TRAIN_GPT, 4, {"--steps", "200", "--checkpoint", dir, "--checkpoint-every", "1"},
            {"--enable-recovery"}, "step  20/200", SIGKILL, victim);
    const std::string named = fmt::format("rank {} failed: its process ended without a word", victim);
    EXPECT_EQ(lines_with(killed.errors, {"train_gpt:", named}), 3) << killed.errors;
    ASSERT_FALSE(list_checkpoints(dir).empty());
    EXPECT_NO_THROW(Checkpoint(list_checkpoints(dir).front().path));
  }
}

TEST_F(MpiRuns, HelpIsPrintedOnce) {
  const ProgramResult result = well(run(STOWAGE_TRAIN_GPT, 2, {"--help"}));
  EXPECT_EQ(result.output.find("Usage:"), result.output.rfind("Usage:"));
}

}  // namespace
}  // namespace stowage::samples
