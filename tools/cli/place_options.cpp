#include "tools/cli/place_options.h"

#include <fmt/format.h>

#include "stowage/error.h"

namespace stowage {
namespace {

Bytes size_of_option(const char* option, const std::string& text) {
  try {
    return parse_bytes(text);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{}: {}", option, error.what()));
  }
}

}  // namespace

CLI::App* add_place(CLI::App& app, PlaceWords& words) {
  CLI::App* place = app.add_subcommand("place", "Offsets for buffers with known lifetimes, in little memory");
  place->footer(
      "FILE has the columns id, lower, upper and size, in any order; a buffer is live from lower up to, but\n"
      "not at, upper. A column offset is passed over, any other is refused.\n"
      "SIZE is 64MiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: 0 it fits, 2 no placement within the capacity was found, or the command line or the file\n"
      "must change; no --output is written then.");
  place->get_formatter()->column_width(34);
  PlaceCommand& command = words.command;
  place->add_option("FILE", command.file, "the buffers as CSV")->required()->type_name("");
  place->add_option("--capacity", words.capacity, "stop when they fit in this (as little as can be found)")
      ->type_name("SIZE");
  place->add_option("--time", command.seconds, "seconds to look for a better placement; 0: no search")
      ->type_name("SECONDS")
      ->capture_default_str();
  place->add_option("--alignment", words.alignment, "what divides every offset, a power of two")
      ->type_name("SIZE")
      ->capture_default_str();
  place->add_flag("--json", command.json, "answer as JSON");
  place->add_option("--output", command.output_file, "write id,lower,upper,size,offset")->type_name("FILE");
  return place;
}

PlaceCommand understand(const PlaceWords& words) {
  PlaceCommand command = words.command;
  if (!words.capacity.empty()) command.capacity = size_of_option("--capacity", words.capacity);
  command.alignment = size_of_option("--alignment", words.alignment);
  return command;
}

}  // namespace stowage
