// `stowage run`: a program with the interposer in it (docs/interposer.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

struct RunCommand {
  std::vector<std::string> program;  // and its arguments
  std::optional<Bytes> limit;        // what each card looks like, at most; nothing: as it is
  std::optional<Bytes> spill;        // of the host, that each process may take where a card is full
  bool cache = false;                // what cudaMalloc gave out is kept and used again
  std::string record_file;           // every call; empty: not kept
  std::string report_file;           // what was used; "-": text on stderr; empty: none
};

// Runs the program to its end and writes the report. Returns its exit code; where a signal ended it, ends by
// the same one. Says on stderr where no call was caught. Throws InvalidInput naming the program that cannot
// be started, or the file that cannot be written.
int run_run_command(const RunCommand& command);

}  // namespace stowage
