#include "tools/cli/replay_options.h"

#include <fmt/format.h>

#include "stowage/error.h"

namespace stowage {

CLI::App* add_replay(CLI::App& app, ReplayWords& words) {
  CLI::App* replay =
      app.add_subcommand("replay", "What allocators would hold for a program's allocations, and how fast");
  replay->footer(
      "FILE has the columns id, lower, upper and size, in any order: allocated at lower, freed at upper, "
      "frees\n"
      "first at equal times. It is one iteration, and is replayed three times over. Or it is a recorded "
      "history\n"
      "(docs/history.md), or what stowage run --record wrote, replayed once.\n"
      "stowage: this library's caching allocator, on a simulated device whose mapping of memory is in its "
      "times.\n"
      "planned: iterations that come again get fixed offsets, the rest goes there; shown from its first plan "
      "on.\n"
      "pytorch, pytorch-expandable: models of PyTorch's caching allocator, without and with expandable "
      "segments;\n"
      "their times are those of the models, without any call of a device.\n"
      "Times are of the second and later iterations, or of all where a history has no iterations.\n"
      "SIZE is 64MiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: 0, or 2 where a policy runs out of memory, or the command line or the file must change.");
  replay->get_formatter()->column_width(34);
  ReplayCommand& command = words.command;
  replay
      ->add_option("FILE", command.file,
                   "lifetimes as CSV, a history as JSON Lines, or a record of stowage run")
      ->required()
      ->type_name("");
  replay->add_option("--policy", command.policy, fmt::format("{} or all", fmt::join(replay_policies(), ", ")))
      ->type_name("POLICY")
      ->capture_default_str();
  replay->add_option("--limit", words.limit, "what the device has (as much as is asked for)")
      ->type_name("SIZE");
  replay->add_flag("--json", command.json, "answer as JSON");
  return replay;
}

ReplayCommand understand(const ReplayWords& words) {
  ReplayCommand command = words.command;
  if (words.limit.empty()) return command;
  try {
    command.limit = parse_bytes(words.limit);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--limit: {}", error.what()));
  }
  return command;
}

}  // namespace stowage
