// The options of `stowage place`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/cli/place_command.h"

namespace stowage {

// What CLI11 fills in before the words are understood. Must outlive the parsing.
struct PlaceWords {
  PlaceCommand command;
  std::string capacity, alignment = "1";  // capacity "": not given
};

CLI::App* add_place(CLI::App& app, PlaceWords& words);

// Throws InvalidInput that names the option and says what it takes.
PlaceCommand understand(const PlaceWords& words);

}  // namespace stowage
