// `stowage place`: fixed offsets for buffers with known lifetimes, in as little memory as can be found.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "stowage/bytes.h"

namespace CLI {
class App;
}

namespace stowage {

struct PlaceCommand {
  std::string file;               // CSV, as parse_buffers takes it
  std::optional<Bytes> capacity;  // nullopt: the least memory that can be found
  double seconds = 10;            // approximate wall time for placing
  Bytes alignment = 1;            // alignment of every offset, a power of two
  bool json = false;              // prints the answer as JSON
  std::string output_file;        // file to write to_csv to; empty: none
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// Appends the answer to `output`: buffers, lower_bound, peak, seconds, fits, as JSON also optimal. Returns
// the exit code: 0 it fits, 2 no placement within the capacity was found; nothing is written then. Throws
// InvalidInput naming the option, or the file that cannot be read, parsed or written.
int run_place_command(const PlaceCommand& command, std::string& output);

// The command line before it is parsed. Must outlive the parsing.
struct RawPlaceOptions {
  PlaceCommand command;
  std::string capacity, alignment = "1";  // capacity "": not given
};

CLI::App* add_place(CLI::App& app, RawPlaceOptions& raw);

// Throws InvalidInput that names the option and says what it takes.
PlaceCommand parse(const RawPlaceOptions& raw);

}  // namespace stowage
