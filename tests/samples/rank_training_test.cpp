// Trainings by several ranks, however these are started: the bits of one device, checkpoints for any number
// of ranks, mistakes, signals and ranks that die. A suite's parameter is the way to start ranks; a build has
// those that it can run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "stowage/checkpoint.h"
#include "stowage/token_shards.h"
#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/rank_launchers.h"
#include "tests/support/draws.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The number that follows these words.
std::string number_behind(const std::string& words, const std::string& text) {
  const std::size_t begin = text.find(words) + words.size();
  return text.substr(begin, text.find_first_not_of("0123456789", begin) - begin);
}

std::string tensors_of(const CheckpointName& checkpoint) {
  return contents_of(checkpoint.path + "/tensors.bin");
}

class RankTest : public ::testing::TestWithParam<Launcher> {
 protected:
  // Four steps with dropout, some of them clipped, in a gradient group for each rank; the policy plans at
  // once.
  std::string training(const std::string& more) const {
    return fmt::format(
        "--data {} --machine {} --device {} --layers 1 --width 32 --heads 2 --sequence 16 --batch {} "
        "--micro-batches {} --gradient-groups {} --steps 4 --warmup 2 --dropout 0.1 --clip 2 --threads 2 "
        "--policy zero-offload {}",
        text_, machine_, GetParam().device, 2 * ranks_, ranks_, ranks_, more);
  }
  ProgramResult alone(const std::string& more) const {
    return run_program(GetParam().program, words_of(training(more)));
  }
  RankResult run(RankRun run) const {
    run.program = GetParam().program;
    run.arguments = training(run.arguments);
    return GetParam().run(run);
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  // The arguments for a run that leaves all it can under this name.
  std::string leaving(const std::string& name) const {
    return fmt::format(" --checkpoint {0} --checkpoint-every 2 --keep 9 --log {0}.log --weights {0}.weights",
                       file(name));
  }
  std::string bits_of(const std::string& name) const {
    return numbers_in(file(name + ".log")) + contents_of(file(name + ".weights"));
  }
  // The least memory with which all ranks train, as the refusal of less advises.
  std::string least_memory(const std::string& more) const {
    const std::string advice = "--device-memory 1000: too small; the smallest that works is ";
    return number_behind(
        advice, told({.ranks = ranks_, .arguments = more + " --policy auto --device-memory 1000"}, {advice}));
  }
  // Expects exit code 2, and one line of ours, with all `parts`. Returns the errors.
  std::string told(const RankRun& mistaken, const std::vector<std::string>& parts) const {
    return expect_told_once(run(mistaken), parts);
  }

  const int ranks_ = GetParam().ranks;
  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", documents());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

// What all programs and launchers must hold.
class RankBits : public RankTest {
 protected:
  // A GPT reads token shards, of which each process takes what its ranks train on; a BERT reads the text.
  std::string data() const {
    if (GetParam().program != std::string(STOWAGE_TRAIN_GPT)) return "--evaluate-every 2";
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < 3000; ++i) tokens.push_back(i * i % 251 + 1);
    TokenShardWriter writer(file("shard.bin"), ShardVersion::two_bytes);
    writer.append(tokens);
    writer.commit();
    return fmt::format("--data {0} --evaluation-data {0} --evaluate-every 2 --evaluate-on cpu",
                       file("shard.bin"));
  }
  // The summary, the log and the page say what each rank did.
  void expect_rows(const std::string& output, const std::string& log, const std::string& page) const {
    for (int rank = 0; rank < ranks_; ++rank) {
      EXPECT_THAT(output, HasSubstr(fmt::format("\n  rank {}   ", rank)));
      EXPECT_EQ(lines_with(log, {fmt::format("{{\"rank\": {}, \"steps\": 4, ", rank)}), 1);
      EXPECT_THAT(page, HasSubstr(fmt::format("<tr><td>{}</td>", rank)));
    }
    EXPECT_THAT(log, Not(HasSubstr("\"peer_bytes\": 0,")));
  }
  void expect_same_checkpoints(const std::string& one, const std::string& other) const {
    const auto of_one = list_checkpoints(file(one)), of_other = list_checkpoints(file(other));
    ASSERT_EQ(of_one.size(), 2U);
    ASSERT_EQ(of_other.size(), 2U);
    for (std::size_t i = 0; i < of_one.size(); ++i)
      EXPECT_TRUE(tensors_of(of_one[i]) == tensors_of(of_other[i])) << of_one[i].path;
  }
};

TEST_P(RankBits, AreThoseOfOneDeviceAndCheckpointsServeAnyNumber) {
  const std::string task = data();
  EXPECT_THAT(well(alone(task + leaving("one"))).output, Not(HasSubstr("rank 0")));
  EXPECT_THAT(contents_of(file("one.log")), Not(HasSubstr("\"rank\"")));
  EXPECT_THAT(bits_of("one"), HasSubstr("\n4 "));
  const std::string memory = testing::sanitized ? "unlimited" : least_memory(task + leaving("all"));
  const std::string more = fmt::format("{} {} --policy auto --device-memory {} --report {}", task,
                                       leaving("all"), memory, file("page"));
  const std::string output = well(run({.ranks = ranks_, .arguments = more})).output;
  EXPECT_TRUE(bits_of("all") == bits_of("one"));
  EXPECT_THAT(output, HasSubstr(GetParam().device[0] == 'c' ? "CUDA device 0" : "simulated"));
  expect_rows(output, contents_of(file("all.log")), contents_of(file("page")));
  expect_same_checkpoints("one", "all");
  if (testing::sanitized) return;

  const auto from = [&](const std::string& name) {
    return fmt::format("{} --resume {} --weights {}", task, list_checkpoints(file(name)).at(1).path,
                       file("resumed"));
  };
  const std::string end = contents_of(file("one.weights"));
  well(run({.arguments = from("one") + " --policy zero-infinity --threads 1"}));
  EXPECT_TRUE(contents_of(file("resumed")) == end) << "two ranks";
  well(alone(from("all")));
  EXPECT_TRUE(contents_of(file("resumed")) == end) << "one device";
}

// What all launchers must hold.
class Ranks : public RankTest {};

// The rate of learning does not depend on --steps: the checkpoint is that of a run of as many steps.
TEST_P(Ranks, ASignalToOneStopsAllAtOneStep) {
  const std::string constant = "--schedule constant --checkpoint ";
  const RankResult stopped = expect_code(run({.ranks = ranks_,
                                              .arguments = "--steps 100000 " + constant + file("stopped"),
                                              .when = "step      1/100000",
                                              .receiver = ranks_ - 1}),
                                         130);
  EXPECT_THAT(stopped.errors, Not(HasSubstr("train_gpt:")));
  EXPECT_THAT(stopped.output, HasSubstr("stopped by Ctrl-C; what was asked for is written"));
  const CheckpointName last = list_checkpoints(file("stopped")).at(0);
  well(alone(fmt::format("--steps {} {} {}", last.step, constant, file("whole"))));
  EXPECT_TRUE(tensors_of(last) == tensors_of(list_checkpoints(file("whole")).at(0)));
}

// At a rate at which later steps are worse than earlier ones.
TEST_P(Ranks, EndEarlyBehindTheStepOfOneDevice) {
  const std::string early =
      "--steps 60 --schedule constant --learning-rate 3 --warmup 0 --evaluate-every 2 "
      "--evaluation-samples 4 --patience 2 --checkpoint ";
  const std::string ended = "\nended early   behind step ";
  const std::string alone_ended = well(alone(early + file("one"))).output;
  ASSERT_THAT(alone_ended, HasSubstr(ended));
  const std::string behind = ended + number_behind(ended, alone_ended) + " of 60: ";
  EXPECT_THAT(well(run({.ranks = ranks_, .arguments = early + file("all")})).output, HasSubstr(behind));
  EXPECT_TRUE(tensors_of(list_checkpoints(file("one")).at(0)) ==
              tensors_of(list_checkpoints(file("all")).at(0)));
}

// Launchers whose ranks are processes.
class RankProcesses : public RankTest {};

TEST_P(RankProcesses, AreRefusedWhereOneIsOfAnotherRun) {
  told({.first = on_rank(1, R"(set -- "$@" --seed 2)")},
       {"train_gpt: rank 1: ", "differs from that of rank 0"});
}

TEST_P(RankProcesses, PrintHelpOnce) {
  const std::string output = well(run({.arguments = "--help"})).output;
  EXPECT_NE(output.find("Usage:"), std::string::npos);
  EXPECT_EQ(output.find("Usage:"), output.rfind("Usage:"));
}

// bench/checkpoint/run_ranks kills more of them.
TEST_P(RankProcesses, NameTheOneThatDiesAndEnd) {
  for (const int victim : {0, ranks_ / 2}) {
    const std::string saved = file(fmt::format("saved{}", victim));
    const RankResult killed = run({.ranks = ranks_,
                                   .arguments = "--steps 200 --checkpoint-every 1 --checkpoint " + saved,
                                   .when = "step  20/200",
                                   .signal = SIGKILL,
                                   .receiver = victim,
                                   .outlives = true});
    const std::string named = fmt::format("rank {} failed: its process ended", victim);
    EXPECT_EQ(lines_with(killed.errors, {"train_gpt:", named}), ranks_ - 1) << killed.errors;
    if (killed.exit_codes.size() == 2) {
      EXPECT_EQ(killed.exit_codes.at(victim == 0 ? 1 : 0), 1);
    }
    EXPECT_NO_THROW(Checkpoint(list_checkpoints(saved).at(0).path));
  }
}

// Launchers of processes with a card each, over the fakes.
class CardRanks : public RankTest {};

TEST_P(CardRanks, NameACallOfNcclThatFails) {
  for (const auto& [call, rank, named] : {std::tuple{"ncclGetUniqueId:1", 0, "open_nccl_communicator"},
                                          {"ncclCommInitRankConfig:1", 1, "open_nccl_communicator"},
                                          {"ncclGroupEnd:3", 1, "all_gather"},
                                          {"ncclSend:5", 0, "all_gather"}}) {
    const std::string fault = fmt::format("export STOWAGE_FAKE_CUDA_FAIL={}", call);
    const RankResult failed = run({.first = on_rank(rank, fault), .outlives = true});
    const std::string why = fmt::format("rank {} failed in {}: NCCL answers 'internal error'", rank, named);
    EXPECT_EQ(lines_with(failed.errors, {"train_gpt:", why}), 2) << call << ": " << failed.errors;
  }
}

// The first memory that is page-locked once the ranks have come together is what engines compare their plans
// by: there the other rank waits. The rank's own error is told, though the other has ended for it meanwhile.
TEST_P(CardRanks, NameTheOneThatFailsAlone) {
  const std::string fault = "export STOWAGE_FAKE_CUDA_FAIL=ncclCommInitRankConfig+cudaHostRegister:1";
  const std::string errors = run({.first = on_rank(1, fault), .outlives = true}).errors;
  EXPECT_EQ(lines_with(errors, {"train_gpt: rank 1: ", "cudaHostRegister"}), 1) << errors;
  EXPECT_EQ(lines_with(errors, {"train_gpt: ", "rank 1 failed: ", "cudaHostRegister"}), 1) << errors;
}

// Processes that see all cards.
class VisibleCards : public RankTest {};

TEST_P(VisibleCards, EachRankNeedsOneOfItsOwn) {
  told({.first = "export STOWAGE_FAKE_CUDA_CARDS=1;"},
       {"ranks 0 and 1 are on one card, GPU-00000000-0000-0000-0000-000000000001: "});
  told({.first = on_rank(1, "export CUDA_VISIBLE_DEVICES=1,0")}, {"ranks 0 and 1 are on one card, GPU-"});
  told({.first = on_rank(1, "export STOWAGE_FAKE_CUDA=no-device")},
       {"train_gpt: rank 1: --device: ", "sees no card"});
  told({.first = "export STOWAGE_NCCL_MODULE=/nowhere/libstowage_nccl.so;"},
       {"the NCCL module is not there"});
  told({.arguments = "--device-memory 5GiB"}, {"of one of the 2 cards are free"});
}

// Rank 0's device means all. Without a card there is nobody to ask for NCCL, and no way to simulate ranks
// that MPI does not know.
TEST_P(VisibleCards, AutoIsThatOfRankZero) {
  const std::string none =
      "export STOWAGE_FAKE_CUDA=no-device STOWAGE_NCCL_MODULE=/nowhere/libstowage_nccl.so;";
  const std::string advice =
      "train on cards: for simulated devices give one process --devices 2, or start the processes by mpirun";
  EXPECT_THAT(well(run({.arguments = "--device auto"})).output, HasSubstr("CUDA device 0"));
  told({.arguments = "--device auto", .first = none}, {"torchrun has started 2 processes", advice});
  told({.arguments = "--device simulated"}, {"torchrun has started 2 processes", advice});
}

class MpiRanks : public RankTest {};

TEST_P(MpiRanks, LoadMpiWhereThereAreSeveralAlone) {
  const std::string nowhere = "export STOWAGE_MPI_MODULE=/nowhere/libstowage_mpi.so;";
  well(run({.ranks = 1, .arguments = "--steps 1", .first = nowhere}));
  EXPECT_THAT(expect_code(run({.arguments = "--steps 1", .first = nowhere}), 2).errors,
              HasSubstr("the MPI module is not there (looked for /nowhere/libstowage_mpi.so): install"));
}

// Each of them would train alone.
TEST_P(MpiRanks, AreRefusedWhereMpiDoesNotKnowThem) {
  const std::string line = fmt::format("PMI_RANK=0 PMI_SIZE=2 {} {}", STOWAGE_TRAIN_GPT, training(""));
  expect_told_once(joined({run_program("/usr/bin/env", words_of(line))}),
                   {"mpiexec has started 2 processes, of which MPI knows 1: start them by the mpirun"});
}

class DeviceRanks : public RankTest {};

TEST_P(DeviceRanks, AreRefusedOnAMachineOfFewer) {
  told({.ranks = 4, .arguments = "--machine 2x-rtx4090 --plan-only"},
       {"--devices 4: --machine 2x-rtx4090 is a machine of 2 devices; leave out --machine",
        "or give a machine of 4 (stowage calibrate --devices 4)"});
}

// The host memory that is advised is enough.
TEST_P(DeviceRanks, HostMemoryIsThatOfAll) {
  const std::string little =
      fmt::format("--steps 1 --checkpoint {} --policy auto --device-memory {} --host-memory ", file("saved"),
                  least_memory(""));
  const std::string advice =
      told({.ranks = ranks_, .arguments = little + "500000"}, {"--host-memory 500000"});
  well(run({.ranks = ranks_, .arguments = little + number_behind("give --host-memory ", advice)}));
}

TEST_P(DeviceRanks, AreRefusedWhereTheyDoNotDivideTheWork) {
  const auto refusal = [](const std::string& more, const std::vector<std::string>& parts) {
    expect_refusal(run_program(STOWAGE_TRAIN_GPT, words_of("--data text " + more)), parts);
  };
  refusal("--devices 3", {"--devices 3", "power of two"});
  refusal("--devices 4 --gradient-groups 2 --micro-batches 2 --batch 8",
          {"--devices 4", "--gradient-groups 2"});
  refusal("--devices 4 --batch 6", {"--devices 4", "--batch 6", "multiple of it"});
  refusal("--devices 0", {"--devices"});
  refusal("--devices 4 --batch 12 --micro-batches 6", {"--devices 4", "--micro-batches 6"});
}

// The launchers of this build.
std::vector<Launcher> launchers() {
  const char* const simulated = "simulated --link-bandwidth unthrottled";
  const std::vector<Launcher> all = {
      {"devices", simulated, 4, run_devices},
      {"devices_bert", simulated, 4, run_devices, STOWAGE_TRAIN_BERT},
      {"mpi", simulated, 4, run_by_mpirun},
      {"mpi_bert", simulated, 4, run_by_mpirun, STOWAGE_TRAIN_BERT},
      {"mpi_cards", "cuda", 2, run_cards_by_mpirun},
      {"tcp_cards", "cuda", 2, run_cards_over_tcp},
  };
  const Words built = words_of(STOWAGE_LAUNCHERS);
  std::vector<Launcher> result;
  std::copy_if(all.begin(), all.end(), std::back_inserter(result), [&](const Launcher& launcher) {
    return std::count(built.begin(), built.end(), launcher.name) > 0;
  });
  return result;
}

// Those of them with one of these names; under a sanitizer none, for it looks at the bits alone.
auto named(const std::set<std::string>& names) {
  std::vector<Launcher> result;
  for (const Launcher& launcher : launchers())
    if (!testing::sanitized && names.contains(launcher.name)) result.push_back(launcher);
  return ::testing::ValuesIn(result);
}

constexpr auto name_of = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(By, RankBits, ::testing::ValuesIn(launchers()), name_of);
INSTANTIATE_TEST_SUITE_P(By, Ranks, named({"devices", "mpi", "mpi_cards", "tcp_cards"}), name_of);
INSTANTIATE_TEST_SUITE_P(By, RankProcesses, named({"mpi", "mpi_cards", "tcp_cards"}), name_of);
INSTANTIATE_TEST_SUITE_P(By, CardRanks, named({"mpi_cards", "tcp_cards"}), name_of);
INSTANTIATE_TEST_SUITE_P(By, VisibleCards, named({"tcp_cards"}), name_of);
INSTANTIATE_TEST_SUITE_P(By, MpiRanks, named({"mpi"}), name_of);
INSTANTIATE_TEST_SUITE_P(By, DeviceRanks, named({"devices"}), name_of);
// A build without MPI or cards has no launcher for some suites.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Ranks);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RankProcesses);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CardRanks);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VisibleCards);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MpiRanks);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceRanks);

}  // namespace
}  // namespace stowage::samples
