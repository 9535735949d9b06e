// `stowage parallel`: which parallelism, by anybody's costs of the layers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "offload/parallel/search.h"

namespace CLI {
class App;
}

namespace stowage {

struct ParallelCommand {
  std::string costs_file;                      // as parallel_costs_from_json reads it
  std::optional<int> devices;                  // instead of the file's
  std::optional<Bytes> memory;                 // of each device, instead of the file's
  std::optional<ParallelObjective> objective;  // instead of the file's
  std::uint64_t most_work = SearchQuestion{}.most_work;
  bool json = false;
  std::string trace_file;  // empty: none
  std::function<void(const std::string&)> progress = [](const std::string&) {};
  std::function<bool()> stop = [] { return false; };  // asked now and then; true ends the search
};

// Appends the answer to `output`. Returns the exit code: 0 there is a pipeline, 2 there is none, 130 the
// search was stopped (the best so far is printed). Throws InvalidInput that names the option, or the file and
// its field.
int run_parallel_command(const ParallelCommand& command, std::string& output);

// The command line before it is parsed. Must outlive the parsing.
struct RawParallelOptions {
  ParallelCommand command;
  std::optional<int> devices;
  std::string memory, objective;  // "": not given
};

CLI::App* add_parallel(CLI::App& app, RawParallelOptions& raw);

// Throws InvalidInput that names the option and says what it takes.
ParallelCommand parse(const RawParallelOptions& raw);

}  // namespace stowage
