// The options of `stowage run`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/cli/run_command.h"

namespace stowage {

// What CLI11 fills in before the words are understood. Must outlive the parsing.
struct RunWords {
  RunCommand command;
  std::string limit, spill;  // "": not given
};

CLI::App* add_run(CLI::App& app, RunWords& words);

// Of `run`'s words, those behind the first "--" are the program's: they are cut off and returned. No other
// command has any.
std::vector<std::string> cut_program(std::vector<std::string>& words);

// Throws InvalidInput where there is none: its words may stand among the options, where they would be taken
// for mistaken ones.
void require_program(const RunCommand& command);

// Throws InvalidInput that names the option and says what it takes.
RunCommand understand(const RunWords& words);

}  // namespace stowage
