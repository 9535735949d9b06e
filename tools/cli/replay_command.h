// `stowage replay`: how much memory allocators would hold for a program's allocations, and
// how fast they answer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stowage/machine.h"

namespace CLI {
class App;
}

namespace stowage {

struct ReplayCommand {
  std::string file;            // lifetimes as parse_buffers takes them, a history (docs/history.md) or a
                               // record of `stowage run`
  std::string policy = "all";  // one of replay_policies(), or "all"
  Bytes limit = unlimited;     // memory limit of the device
  bool json = false;
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// Returns the names in the order in which "all" lists them.
const std::vector<std::string>& replay_policies();

// Appends to `output` a header line and one line for each policy: policy, operations, peak_live_bytes,
// peak_reserved_bytes, ratio, nanoseconds_per_operation; or as JSON one object (for "all" a list of them),
// with peaks of the first iteration too. Lifetimes count as one iteration, which is replayed three times; the
// policy `planned` is measured from its first plan on. Returns the exit code: 0, or 2 where a policy runs out
// of the limit. Throws InvalidInput naming the option, or the file that cannot be read or parsed.
int run_replay_command(const ReplayCommand& command, std::string& output);

// The command line before it is parsed. Must outlive the parsing.
struct RawReplayOptions {
  ReplayCommand command;
  std::string limit;  // "": the option is not given
};

CLI::App* add_replay(CLI::App& app, RawReplayOptions& raw);

// Throws InvalidInput that names the option and says what it takes.
ReplayCommand parse(const RawReplayOptions& raw);

}  // namespace stowage
