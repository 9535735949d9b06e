// Reads the log and the output of a training by one or several ranks, so that tests can compare them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace stowage::samples {

using Words = std::vector<std::string>;

// Each step's loss, gradient norm and clipping in a log, and all evaluations: the same however many devices
// trained.
inline std::string numbers_in(const std::string& log) {
  std::string numbers;
  std::istringstream lines(contents_of(log));
  for (std::string line; std::getline(lines, line);) {
    const auto step = nlohmann::json::parse(line);
    if (step.contains("grad_norm"))
      numbers += fmt::format("{} {} {} {}\n", step["step"].dump(), step["loss"].dump(),
                             step["grad_norm"].dump(), step["clip_scale"].dump());
    else if (step.contains("evaluation"))
      numbers += step["evaluation"].dump() + '\n';
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

}  // namespace stowage::samples
