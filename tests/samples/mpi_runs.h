// Programs that mpirun starts, and what they leave.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {

using Words = std::vector<std::string>;

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

// What all logs have alike, step by step.
inline std::string numbers_in(const std::string& log) {
  std::string numbers;
  std::istringstream lines(contents_of(log));
  for (std::string line; std::getline(lines, line);) {
    const auto step = nlohmann::json::parse(line);
    if (step.contains("grad_norm"))
      numbers += fmt::format("{} {} {} {}\n", step["step"].dump(), step["loss"].dump(),
                             step["grad_norm"].dump(), step["clip_scale"].dump());
  }
  return numbers;
}

// How many lines have all of these parts.
inline std::int64_t lines_with(const std::string& text, const std::vector<std::string>& parts) {
  std::istringstream lines(text);
  std::int64_t count = 0;
  for (std::string line; std::getline(lines, line);)
    count += std::all_of(parts.begin(), parts.end(),
                         [&](const std::string& part) { return line.find(part) != std::string::npos; });
  return count;
}

// Code 2, and one line of ours beside mpirun's.
inline void expect_told_once(const ProgramResult& result, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_EQ(lines_with(result.errors, {"train_gpt:"}), 1) << result.errors;
  EXPECT_EQ(lines_with(result.errors, parts), 1) << result.errors;
}

}  // namespace stowage::samples
