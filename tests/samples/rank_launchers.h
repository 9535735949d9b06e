// The ways to start the ranks of one training, behind one function each.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/samples/rank_results.h"
#include "tests/samples/run_program.h"
#include "tests/samples/tcp_runs.h"

namespace stowage::samples {

// A training by several ranks.
struct RankRun {
  int ranks = 2;
  std::string program = STOWAGE_TRAIN_GPT;
  std::string arguments = "";  // the trainer's, with blanks between them
  std::string first = "";      // shell commands that each process runs before the trainer; $rank is its rank
  std::string when = "";       // rank 0 has printed this: `signal` to rank `receiver`
  int signal = SIGINT;
  int receiver = 0;
  bool outlives = false;  // Ranks live on when another fails; mpirun, which would end them, exits with 0.
};

struct RankResult {
  std::vector<int> exit_codes;  // of each program that the test has started: each rank, or mpirun
  std::string output, errors;   // of all ranks
};

// One way to start ranks. Each of them is tried on one program.
struct Launcher {
  const char* name;
  const char* device;  // --device, and what follows it
  int ranks;           // the most that a test starts
  RankResult (*run)(const RankRun& run);
  const char* program = STOWAGE_TRAIN_GPT;
};

inline Words words_of(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

inline RankResult joined(const std::vector<ProgramResult>& programs) {
  RankResult result;
  for (const ProgramResult& program : programs) {
    result.exit_codes.push_back(program.exit_code);
    result.output += program.output;
    result.errors += program.errors;
  }
  return result;
}

// Expects this exit code of all.
inline RankResult expect_code(RankResult result, int code) {
  for (const int each : result.exit_codes) EXPECT_EQ(each, code) << result.errors;
  return result;
}

inline RankResult well(RankResult result) { return expect_code(std::move(result), 0); }

// Expects code 2, and one line of ours, which has all `parts`. Returns the errors.
inline std::string expect_told_once(const RankResult& result, const std::vector<std::string>& parts) {
  expect_code(result, 2);
  EXPECT_EQ(lines_with(result.errors, {"train_gpt:"}) + lines_with(result.errors, {"train_bert:"}), 1)
      << result.errors;
  EXPECT_EQ(lines_with(result.errors, parts), 1) << result.errors;
  return result.errors;
}

// Shell commands for RankRun::first, run by that rank alone.
inline std::string on_rank(int rank, const std::string& commands) {
  return fmt::format("if test $rank = {}; then {}; fi;", rank, commands);
}

// The arguments of a shell that becomes the trainer.
inline Words shell_words(const RankRun& run) {
  Words words = {"-c", "rank=${RANK:-$OMPI_COMM_WORLD_RANK};" + run.first + R"(exec "$0" "$@")", run.program};
  for (const std::string& word : words_of(run.arguments)) words.push_back(word);
  return words;
}

// `devices`: of one process.
inline RankResult run_devices(const RankRun& run) {
  const std::string line = fmt::format("{} --devices {}", run.arguments, run.ranks);
  return joined({run_program(run.program, words_of(line), run.when, run.signal)});
}

inline RankResult run_by_mpirun(const RankRun& run) {
  Words words = words_of(fmt::format("--map-by :OVERSUBSCRIBE --bind-to none {} -n {} /bin/sh",
                                     run.outlives ? "--enable-recovery" : "", run.ranks));
  for (const std::string& word : shell_words(run)) words.push_back(word);
  return joined({run_program(STOWAGE_MPIRUN, words, run.when, run.signal, [&](pid_t mpirun) {
    return process_of(run.receiver, "OMPI_COMM_WORLD_RANK", mpirun);
  })});
}

// Each process sees one of two cards.
inline RankResult run_cards_by_mpirun(const RankRun& run) {
  RankRun on_cards = run;
  on_cards.first = "export STOWAGE_FAKE_CUDA_CARDS=2 CUDA_VISIBLE_DEVICES=$rank;" + run.first;
  return run_by_mpirun(on_cards);
}

// Each process sees both cards, and knows the others by the variables that torchrun sets.
inline RankResult run_cards_over_tcp(const RankRun& run) {
  RankRun on_cards = run;
  on_cards.first = "export STOWAGE_FAKE_CUDA_CARDS=2;" + run.first;
  const TcpRun ranks = {
      .size = run.ranks, .torchrun = true, .when = run.when, .victim = run.receiver, .signal = run.signal};
  return joined(run_ranks(ranks, "/bin/sh", shell_words(on_cards)));
}

}  // namespace stowage::samples
