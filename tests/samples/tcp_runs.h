// Programs that know who they are by torchrun's variables, and find each other over TCP.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/samples/rank_results.h"
#include "tests/samples/run_program.h"
#include "tests/support/reserved_port.h"

namespace stowage::samples {

// The child of `parent` whose environment says that it is that rank.
inline pid_t process_of(int rank, const std::string& rank_variable, pid_t parent) {
  const std::string variable = '\0' + fmt::format("{}={}", rank_variable, rank) + '\0';
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", parent))) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) {
      std::ifstream file(fmt::format("/proc/{}/environ", child), std::ios::binary);
      const std::string environment{std::istreambuf_iterator<char>(file), {}};
      if (('\0' + environment).find(variable) != std::string::npos) return child;
    }
  }
  throw std::runtime_error(fmt::format("no process is rank {}", rank));
}

// How a set of ranks is started.
struct TcpRun {
  int size = 2;
  bool torchrun = false;  // its agent would listen at MASTER_PORT
  std::string when = "";  // rank 0 has printed this: `signal` to rank `victim`
  int victim = 0;
  int signal = SIGKILL;
};

// One rank of them.
inline ProgramResult run_rank_of(const TcpRun& run, int rank, std::uint16_t port, const std::string& program,
                                 const Words& arguments) {
  Words words = {fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", run.size),
                 "MASTER_ADDR=localhost", fmt::format("MASTER_PORT={}", run.torchrun ? port - 1 : port)};
  if (run.torchrun) words.push_back("TORCHELASTIC_RUN_ID=none");
  words.push_back(program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_program("/usr/bin/env", words, rank == 0 ? run.when : "", run.signal,
                     [&](pid_t) { return process_of(run.victim, "RANK", ::getpid()); });
}

// How each rank's program has ended, by rank.
inline std::vector<ProgramResult> run_ranks(const TcpRun& run, const std::string& program,
                                            const Words& arguments) {
  const ReservedPort port;
  std::vector<std::future<ProgramResult>> ends;
  for (int rank = 0; rank < run.size; ++rank)
    ends.push_back(std::async(
        std::launch::async, [&, rank] { return run_rank_of(run, rank, port.number(), program, arguments); }));
  std::vector<ProgramResult> results;
  for (auto& end : ends) results.push_back(end.get());
  return results;
}

// Expects that all ended well. Rank 0's.
inline ProgramResult all_well(std::vector<ProgramResult> results) {
  for (const ProgramResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.errors;
  return results.front();
}

}  // namespace stowage::samples
