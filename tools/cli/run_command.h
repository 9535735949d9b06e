// `stowage run`: a program with the interposer in it (docs/interposer.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stowage/bytes.h"

namespace CLI {
class App;
}

namespace stowage {

struct RunCommand {
  std::vector<std::string> program;  // the program and its arguments
  std::optional<Bytes> limit;        // most memory that each card seems to have; nullopt: all that it has
  std::optional<Bytes> spill;        // most host memory that each process may take when a card is full
  bool cache = false;                // memory from cudaMalloc is kept when freed, and used again
  std::string record_file;           // file for a record of every call; empty: no record
  std::string report_file;           // file for the report; "-": text on stderr; empty: no report
};

// Runs the program to its end and writes the report. Returns its exit code; if a signal ended it, ends by the
// same signal. Prints a note on stderr if no call was caught. Throws InvalidInput naming the program that
// cannot be started, or the file that cannot be written.
int run_run_command(const RunCommand& command);

// The command line before it is parsed. Must outlive the parsing.
struct RawRunOptions {
  RunCommand command;
  std::string limit, spill;  // "": the option is not given
};

CLI::App* add_run(CLI::App& app, RawRunOptions& raw);

// Cuts the program's words, those behind the first "--", off the words of `run`, and returns them. Returns
// nothing for other commands.
std::vector<std::string> cut_program(std::vector<std::string>& words);

// Throws InvalidInput if there is no program. The program's words may then stand among the options, and would
// be reported as mistaken ones.
void require_program(const RunCommand& command);

// Throws InvalidInput that names the option and says what it takes.
RunCommand parse(const RawRunOptions& raw);

}  // namespace stowage
