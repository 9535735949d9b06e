// Ranks that are processes with a card each, over the fakes of CUDA and NCCL: they leave the bits of one
// card, find a card each or say why not, and end together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/checkpoint.h"
#include "tests/samples/card_training.h"
#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/mpi_runs.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// For the shell that starts each rank.
const char* const own_card_alone = "CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK";
// The variable, for that rank alone.
std::string on_rank(int rank, const std::string& variable) {
  return fmt::format("$(test $OMPI_COMM_WORLD_RANK = {} && echo {} || echo NOTHING=)", rank, variable);
}

class MpiCards : public ::testing::Test {
 protected:
  Words training(const Words& more) const {
    Words words = card_training(text_, machine_);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult alone(const Words& more) const { return run_program(STOWAGE_TRAIN_GPT, training(more)); }
  // A process each on `cards` cards, in an environment with `variable`. `when` and what follows: as
  // run_program's, of one rank; where the signal is SIGKILL, mpirun lets the others live, and its code is 0.
  ProgramResult run(int ranks, int cards, const Words& more,
                    const std::string& variable = "NOTHING=", const std::string& when = "",
                    int signal = SIGINT, int receiver = 0) const {
    Words words = launcher(ranks, signal == SIGKILL ? Words{"--enable-recovery"} : Words{});
    std::string line =
        fmt::format("export STOWAGE_FAKE_CUDA_CARDS={} {}; exec \"$0\" \"$@\"", cards, variable);
    words.insert(words.end(), {"/bin/sh", "-c", line, STOWAGE_TRAIN_GPT});
    const Words train = training(more);
    words.insert(words.end(), train.begin(), train.end());
    return run_program(STOWAGE_MPIRUN, words, when, signal,
                       [=](pid_t mpirun) { return process_of(receiver, mpirun); });
  }
  // Weights and numbers that such a run leaves.
  template <class Run>
  std::string result_of(Words more, const Run& run) const {
    const std::string weights = folder_.file("weights"), log = folder_.file("log");
    more.insert(more.end(), {"--weights", weights, "--log", log});
    EXPECT_THAT(well(run(more)).output, HasSubstr("CUDA device 0"));
    return numbers_in(log) + contents_of(weights);
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", documents());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

TEST_F(MpiCards, LeaveTheBitsOfOneCardAndGoOnFromItsCheckpoints) {
  const std::string of_two = folder_.file("two"), of_one = folder_.file("one");
  const Words saves = {"--checkpoint-every", "2", "--keep", "9", "--evaluate-every", "2", "--checkpoint"};
  const auto saving_in = [&](const std::string& folder) {
    Words words = saves;
    words.push_back(folder);
    return words;
  };
  const auto on_one = [&](const Words& more) { return alone(more); };
  const std::string whole = result_of(saving_in(of_one), on_one);
  EXPECT_THAT(whole, HasSubstr("\n4 "));
  EXPECT_TRUE(result_of(saving_in(of_two), [&](const Words& more) { return run(2, 2, more); }) == whole);
  const auto first_in = [](const std::string& folder) { return list_checkpoints(folder).back().path; };
  EXPECT_TRUE(contents_of(first_in(of_two) + "/tensors.bin") ==
              contents_of(first_in(of_one) + "/tensors.bin"));
  // From there to the same end, in as little memory as works, each process with the one card that it sees.
  const std::string told = run(2, 2, {"--device-memory", "1000"}).errors;
  const std::string words = "the smallest that works is ";
  const std::size_t begin = told.find(words) + words.size();
  const std::string least = told.substr(begin, told.find(' ', begin) - begin);
  const std::string weights = folder_.file("weights");
  well(run(
      2, 2,
      {"--evaluate-every", "2", "--resume", first_in(of_one), "--device-memory", least, "--weights", weights},
      own_card_alone));
  EXPECT_TRUE(whole.ends_with(contents_of(weights)));
  well(alone({"--evaluate-every", "2", "--resume", first_in(of_two), "--weights", weights}));
  EXPECT_TRUE(whole.ends_with(contents_of(weights)));
}

TEST_F(MpiCards, WhatIsWrongIsToldOnce) {
  const auto told = [&](int cards, const Words& more, const std::string& variable,
                        const std::vector<std::string>& parts) {
    expect_told_once(run(2, cards, more, variable), parts);
  };
  told(1, {}, "NOTHING=", {"ranks 0 and 1 are on one card, GPU-00000000-0000-0000-0000-000000000001: "});
  told(2, {}, on_rank(1, "CUDA_VISIBLE_DEVICES=1,0"), {"ranks 0 and 1 are on one card, GPU-"});
  told(2, {}, on_rank(1, "STOWAGE_FAKE_CUDA=no-device"), {"train_gpt: rank 1: --device: ", "sees no card"});
  told(2, {}, "STOWAGE_NCCL_MODULE=/nowhere/libstowage_nccl.so", {"the NCCL module is not there"});
  told(2, {"--device-memory", "5GiB"}, "NOTHING=", {"of one of the 2 cards are free"});
}

// Rank 0's means all; without a card nobody asks for NCCL.
TEST_F(MpiCards, AutoIsThatOfRankZero) {
  const std::string none = "STOWAGE_FAKE_CUDA=no-device STOWAGE_NCCL_MODULE=/nowhere/libstowage_nccl.so";
  EXPECT_THAT(well(run(2, 2, {"--device", "auto"})).output, HasSubstr("CUDA device 0"));
  EXPECT_THAT(well(run(2, 2, {"--device", "auto"}, none)).output, HasSubstr("the simulated device"));
}

TEST_F(MpiCards, ACallOfNcclThatFailsIsNamedByAll) {
  for (const auto& [call, rank, named] : {std::tuple{"ncclGetUniqueId:1", 0, "open_nccl_communicator"},
                                          {"ncclCommInitRankConfig:1", 1, "open_nccl_communicator"},
                                          {"ncclGroupEnd:3", 1, "all_gather"},
                                          {"ncclSend:5", 0, "all_gather"}}) {
    const ProgramResult failed =
        run(2, 2, {}, on_rank(rank, fmt::format("STOWAGE_FAKE_CUDA_FAIL={}", call)), "", SIGKILL);
    const std::string why = fmt::format("rank {} failed in {}: NCCL answers 'internal error'", rank, named);
    EXPECT_EQ(lines_with(failed.errors, {"train_gpt:", why}), 2) << call << ": " << failed.errors;
  }
}

// The first memory that is page-locked once the ranks have come together is what engines compare their plans
// by: there the other waits. The rank's own error is told, though the other has ended for it meanwhile.
TEST_F(MpiCards, ARankThatFailsAloneIsNamedByAll) {
  const std::string fault = "STOWAGE_FAKE_CUDA_FAIL=ncclCommInitRankConfig+cudaHostRegister:1";
  const ProgramResult failed = run(2, 2, {}, on_rank(1, fault), "", SIGKILL);
  EXPECT_EQ(lines_with(failed.errors, {"train_gpt: rank 1: ", "cudaHostRegister"}), 1) << failed.errors;
  EXPECT_EQ(lines_with(failed.errors, {"train_gpt: ", "rank 1 failed: ", "cudaHostRegister"}), 1)
      << failed.errors;
}

TEST_F(MpiCards, ASignalToOneStopsAllAtOneStep) {
  const std::string dir = folder_.file("saved");
  const ProgramResult stopped =
      run(2, 2, {"--steps", "100000", "--checkpoint", dir}, "NOTHING=", "step      1/100000", SIGINT, 1);
  EXPECT_EQ(stopped.exit_code, 130) << stopped.errors;
  EXPECT_THAT(stopped.errors, Not(HasSubstr("train_gpt:")));
  EXPECT_THAT(stopped.output, HasSubstr("stopped by Ctrl-C; what was asked for is written"));
  EXPECT_FALSE(list_checkpoints(dir).empty());
}

TEST_F(MpiCards, ARankThatDiesIsNamedByTheOtherWhichEnds) {
  for (const int victim : {0, 1}) {
    const std::string dir = folder_.file(fmt::format("saved{}", victim));
    const ProgramResult killed = run(2, 2, {"--steps", "200", "--checkpoint", dir, "--checkpoint-every", "1"},
                                     "NOTHING=", "step  20/200", SIGKILL, victim);
    const std::string named = fmt::format("rank {} failed: its process ended without a word", victim);
    EXPECT_EQ(lines_with(killed.errors, {"train_gpt:", named}), 1) << killed.errors;
    ASSERT_FALSE(list_checkpoints(dir).empty());
    EXPECT_NO_THROW(Checkpoint(list_checkpoints(dir).front().path));
  }
}

}  // namespace
}  // namespace stowage::samples
