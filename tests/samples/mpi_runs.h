// Programs that mpirun starts, and what they leave.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/samples/rank_results.h"
#include "tests/samples/run_program.h"

namespace stowage::samples {

// The arguments of mpirun before the program's.
inline Words launcher(int ranks, const Words& options = {}) {
  Words words = {"--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"-n", std::to_string(ranks)});
  return words;
}

// The process of a rank that this mpirun has started; 0 where there is none.
inline pid_t process_of(int rank, pid_t mpirun) {
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", mpirun, mpirun));
  for (pid_t child = 0; children >> child;) {
    std::ifstream file(fmt::format("/proc/{}/environ", child), std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    if (environment.find(fmt::format("OMPI_COMM_WORLD_RANK={}", rank) + '\0') != std::string::npos)
      return child;
  }
  return 0;
}

// Code 2, and one line of ours beside mpirun's.
inline void expect_told_once(const ProgramResult& result, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_EQ(lines_with(result.errors, {"train_gpt:"}), 1) << result.errors;
  EXPECT_EQ(lines_with(result.errors, parts), 1) << result.errors;
}

}  // namespace stowage::samples
