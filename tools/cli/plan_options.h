// The options of `stowage plan`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/cli/plan_command.h"

namespace stowage {

// What CLI11 fills in before the words are understood. Must outlive the parsing.
struct PlanWords {
  PlanCommand command;
  std::string device, host, bucket = "auto", policy = "auto",
                            speculate = "auto";  // device, host "": not given
};

CLI::App* add_plan(CLI::App& app, PlanWords& words);

// Throws InvalidInput that names the option and says what it takes.
PlanCommand understand(const PlanWords& words);

}  // namespace stowage
