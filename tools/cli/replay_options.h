// The options of `stowage replay`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/cli/replay_command.h"

namespace stowage {

// What CLI11 fills in before the words are understood. Must outlive the parsing.
struct ReplayWords {
  ReplayCommand command;
  std::string limit;  // "": not given
};

CLI::App* add_replay(CLI::App& app, ReplayWords& words);

// Throws InvalidInput that names the option and says what it takes.
ReplayCommand understand(const ReplayWords& words);

}  // namespace stowage
