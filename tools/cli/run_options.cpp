#include "tools/cli/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr Bytes smallest_spill = 2_MiB;

std::optional<Bytes> size_of(const char* option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    return parse_bytes(text);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{}: {}", option, error.what()));
  }
}

}  // namespace

CLI::App* add_run(CLI::App& app, RunWords& words) {
  CLI::App* run = app.add_subcommand("run", "Runs a CUDA program, with its memory calls watched and limited");
  run->footer(
      "As in: stowage run --limit 6GiB --report memory.html -- PROGRAM ARGUMENTS\n"
      "SIZE is 6GiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: the program's own, or the signal that ended it; 2 where it could not be started.");
  run->get_formatter()->column_width(34);
  run->add_option("--limit", words.limit, "make every card look no larger than this")->type_name("SIZE");
  run->add_option("--spill", words.spill, "go on in so much memory of the host where a card is full")
      ->type_name("SIZE");
  run->add_flag("--cache", words.command.cache, "keep what cudaMalloc gave out, and give it out again");
  run->add_option("--record", words.command.record_file, "write every memory call to this file, as CSV")
      ->type_name("FILE");
  run->add_option("--report", words.command.report_file,
                  "write what was used here at the end: a page (.html), text, or - for stderr")
      ->type_name("FILE");
  return run;
}

std::vector<std::string> cut_program(std::vector<std::string>& words) {
  if (words.empty() || words.front() != "run") return {};
  const auto mark = std::find(words.begin(), words.end(), "--");
  if (mark == words.end()) return {};
  std::vector<std::string> program(mark + 1, words.end());
  words.erase(mark, words.end());
  return program;
}

void require_program(const RunCommand& command) {
  if (!command.program.empty()) return;
  throw InvalidInput(
      "run: there is no program; give it behind --, as in stowage run --limit 6GiB -- PROGRAM");
}

RunCommand understand(const RunWords& words) {
  RunCommand command = words.command;
  command.limit = size_of("--limit", words.limit);
  command.spill = size_of("--spill", words.spill);
  if (command.limit == Bytes{0})
    throw InvalidInput("--limit: a card of 0 bytes runs nothing; give at least 1");
  if (command.spill && *command.spill < smallest_spill)
    throw InvalidInput("--spill: memory is taken in steps of 2 MiB; give at least that, or leave it out");
  require_program(command);
  return command;
}

}  // namespace stowage
