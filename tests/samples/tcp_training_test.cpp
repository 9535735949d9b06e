// Ranks that are processes without MPI, from end to end: they leave the bits of one, and end together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/tcp_runs.h"

namespace stowage::samples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TcpTraining : public ::testing::Test {
 protected:
  Words training(const Words& more) const {
    Words words = {"--data",   text_, "--device",          "simulated", "--machine",        machine_,
                   "--layers", "1",   "--width",           "32",        "--heads",          "2",
                   "--batch",  "8",   "--sequence",        "16",        "--micro-batches",  "2",
                   "--steps",  "4",   "--gradient-groups", "2",         "--link-bandwidth", "unthrottled",
                   "--warmup", "2",   "--dropout",         "0.1",       "--threads",        "2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<ProgramResult> run(const TcpRun& run, const Words& more) const {
    return run_ranks(run, STOWAGE_TRAIN_GPT, training(more));
  }
  ProgramResult alone(const Words& variables, const Words& more = {}) const {
    Words words = variables;
    words.push_back(STOWAGE_TRAIN_GPT);
    for (const std::string& word : training(more)) words.push_back(word);
    return run_program("/usr/bin/env", words);
  }
  // Weights and numbers that a run leaves.
  template <class Run>
  std::string result_of(const Run& run) const {
    const std::string weights = folder_.file("weights"), log = folder_.file("log");
    run({"--weights", weights, "--log", log});
    return numbers_in(log) + contents_of(weights);
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", documents());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

TEST_F(TcpTraining, LeavesTheBitsOfOneProcess) {
  const std::string whole = result_of([&](const Words& more) { well(alone({}, more)); });
  EXPECT_THAT(whole, HasSubstr("\n4 "));
  for (const bool torchrun : {false, true}) {
    EXPECT_TRUE(result_of([&](const Words& more) { all_well(run({.torchrun = torchrun}, more)); }) == whole);
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(lines_with(contents_of(folder_.file("log")), {fmt::format("{{\"rank\": {},", rank)}), 1);
  }
}

TEST_F(TcpTraining, WhatIsWrongIsToldOnce) {
  const std::vector<ProgramResult> results = run({}, {"--weights", "/nowhere/weights"});
  for (const ProgramResult& result : results) EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_EQ(lines_with(results[0].errors + results[1].errors, {"train_gpt:"}), 1);
  EXPECT_THAT(results[0].errors, HasSubstr("--weights /nowhere/weights"));
}

TEST_F(TcpTraining, ARankThatDiesIsNamedByTheOtherWhichEnds) {
  for (const int victim : {0, 1}) {
    const std::vector<ProgramResult> results =
        run({.when = "step    1/5000", .victim = victim}, {"--steps", "5000"});
    EXPECT_EQ(results[static_cast<std::size_t>(victim)].exit_code, 128 + SIGKILL);
    const ProgramResult& other = results[static_cast<std::size_t>(1 - victim)];
    EXPECT_EQ(other.exit_code, 1);
    EXPECT_EQ(
        lines_with(other.errors, {"train_gpt:", fmt::format("rank {} failed: its process ended", victim)}), 1)
        << other.errors;
  }
}

TEST_F(TcpTraining, APortInUseAndVariablesThatMakeNoSenseAreMistakes) {
  const communication::Descriptor other = communication::listen_at(0);
  const auto told = [&](const std::string& port, const std::vector<std::string>& parts) {
    expect_refusal(alone({"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=" + port}), parts);
  };
  const std::string port = std::to_string(communication::port_of(other));
  told(port, {"rank 0 cannot listen at port " + port, "STOWAGE_PORT names another port"});
  told("http", {"train_gpt: MASTER_PORT=http, by the environment: let it be 1 to 65535"});
}

}  // namespace
}  // namespace stowage::samples
