#include "tools/cli/place_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/base/output_file.h"
#include "stowage/error.h"
#include "tools/cli/buffers_csv.h"
#include "tools/cli/files.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

constexpr std::uintmax_t largest_csv = 64 << 20;
constexpr double most_seconds = 1e6;
constexpr double seconds_between_reports = 0.2;

class PlaceClock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void check_options(const PlaceCommand& command) {
  if (!(command.seconds >= 0 && command.seconds <= most_seconds)) {
    throw InvalidInput(
        fmt::format("--time: {} is no time limit; give seconds from 0 to {}", command.seconds, most_seconds));
  }
  if (!std::has_single_bit(command.alignment) || command.alignment > most_place_alignment) {
    throw InvalidInput(
        fmt::format("--alignment: {} is no alignment; give a power of two, at most 1GiB", command.alignment));
  }
  if (command.capacity == Bytes{0}) {
    throw InvalidInput("--capacity: nothing fits in 0 bytes; give at least 1, or leave it out");
  }
}

PlacementResult place_within(const PlaceCommand& command, const Buffers& buffers, const PlaceClock& clock) {
  PlacementOptions options;
  options.alignment = std::max(command.alignment, buffers.alignment);
  options.capacity = command.capacity.value_or(0);
  options.node_limit = command.seconds > 0 ? std::numeric_limits<std::uint64_t>::max() : 0;
  double reported = 0;
  options.keep_going = [&](const PlacementProgress& progress) {
    const double seconds = clock.seconds();
    if (seconds - reported >= seconds_between_reports) {
      reported = seconds;
      command.progress(fmt::format("peak {}, bound {}, {} nodes, {:.1f} of {} s", progress.peak,
                                   progress.proven_bound, grouped(progress.nodes), seconds, command.seconds));
    }
    return seconds < command.seconds;
  };
  return solve_placement(buffers.items, options);
}

// Returns notes on what becomes of the file's alignments, gaps and hints.
std::vector<std::string> notes_of(const PlaceCommand& command, const Buffers& buffers) {
  std::vector<std::string> notes;
  if (buffers.alignment > command.alignment)
    notes.push_back(
        fmt::format("every buffer is aligned to {}, the largest alignment of the file", buffers.alignment));
  if (buffers.gaps > 0)
    notes.push_back(
        fmt::format("the gaps of {} buffers are not used: each keeps its place throughout", buffers.gaps));
  if (buffers.hints > 0) notes.push_back(fmt::format("the hints of {} buffers are not used", buffers.hints));
  return notes;
}

std::string answer_text(const PlacementResult& result, double seconds, bool fits, bool json,
                        const std::vector<std::string>& notes) {
  if (json) {
    nlohmann::ordered_json answer{{"buffers", result.offsets.size()},
                                  {"lower_bound", result.lower_bound},
                                  {"peak", result.peak},
                                  {"seconds", seconds},
                                  {"fits", fits},
                                  {"optimal", result.optimal()}};
    if (!notes.empty()) answer["notes"] = notes;
    return answer.dump(2) + '\n';
  }
  Lines lines;
  lines.add("buffers", "{}", result.offsets.size());
  lines.add("lower_bound", "{}", result.lower_bound);
  lines.add("peak", "{}", result.peak);
  lines.add("seconds", "{:.3f}", seconds);
  lines.add("fits", "{}", fits);
  for (const std::string& note : notes) lines.add("note", "{}", note);
  return std::move(lines).text();
}

}  // namespace

CLI::App* add_place(CLI::App& app, RawPlaceOptions& raw) {
  CLI::App* place = app.add_subcommand("place", "Offsets for buffers with known lifetimes, in little memory");
  place->footer(
      "FILE has the columns id, lower, upper and size, in any order; a buffer is live from lower up to, but\n"
      "not at, upper. A column offset is passed over, any other is refused.\n"
      "SIZE is 64MiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: 0 it fits, 2 no placement within the capacity was found, or the command line or the file\n"
      "must change; no --output is written then.");
  place->get_formatter()->column_width(34);
  PlaceCommand& command = raw.command;
  place->add_option("FILE", command.file, "the buffers as CSV")->required()->type_name("");
  place->add_option("--capacity", raw.capacity, "stop when they fit in this (as little as can be found)")
      ->type_name("SIZE");
  place->add_option("--time", command.seconds, "seconds to look for a better placement; 0: no search")
      ->type_name("SECONDS")
      ->capture_default_str();
  place->add_option("--alignment", raw.alignment, "what divides every offset, a power of two")
      ->type_name("SIZE")
      ->capture_default_str();
  place->add_flag("--json", command.json, "answer as JSON");
  place->add_option("--output", command.output_file, "write id,lower,upper,size,offset")->type_name("FILE");
  return place;
}

PlaceCommand parse(const RawPlaceOptions& raw) {
  PlaceCommand command = raw.command;
  if (!raw.capacity.empty())
    command.capacity = with_prefix("--capacity: ", [&] { return parse_bytes(raw.capacity); });
  command.alignment = with_prefix("--alignment: ", [&] { return parse_bytes(raw.alignment); });
  return command;
}

int run_place_command(const PlaceCommand& command, std::string& output) {
  check_options(command);
  OutputFile placed("--output", command.output_file, Writing::whole);
  const Buffers buffers = parse_buffers(
      read_file(command.file, largest_csv, "a CSV file with id, lower, upper and size"), command.file);
  const PlaceClock clock;
  const PlacementResult result = place_within(command, buffers, clock);
  const double seconds = clock.seconds();
  const std::string wrong =
      check_placement(buffers.items, result, std::max(command.alignment, buffers.alignment));
  if (!wrong.empty()) throw Error("the placement is unsound: " + wrong + "; report this with the file");
  const bool fits = !command.capacity || result.peak <= *command.capacity;
  if (fits && placed.wanted()) {
    placed.write(to_csv(buffers, result.offsets));
    placed.commit();
  }
  output += answer_text(result, seconds, fits, command.json, notes_of(command, buffers));
  return fits ? 0 : 2;
}

}  // namespace stowage
