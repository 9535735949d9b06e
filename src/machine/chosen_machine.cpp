#include "src/machine/chosen_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "src/base/printable.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Returns the variable's path; empty if it is relative, since the XDG Base Directory Specification ignores
// relative paths.
std::filesystem::path absolute_in(const char* variable) {
  const char* const text = std::getenv(variable);
  const std::filesystem::path path = text == nullptr ? "" : text;
  return path.is_absolute() ? path : std::filesystem::path();
}

}  // namespace

std::string path_of_machine_here() {
  std::filesystem::path cache = absolute_in("XDG_CACHE_HOME");
  if (cache.empty() && !absolute_in("HOME").empty()) cache = absolute_in("HOME") / ".cache";
  if (cache.empty())
    throw InvalidInput(
        "what was measured of this machine has no place: set XDG_CACHE_HOME or HOME to an absolute path, or "
        "name a file (stowage calibrate --output FILE)");
  return (cache / "stowage/here.json").string();
}

MachineFile read_machine_here() {
  const std::string path = path_of_machine_here();
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error)
    throw InvalidInput(
        fmt::format("this machine has not been measured: run `stowage calibrate`, which leaves {}", path));
  return read_machine_file(path);
}

std::string describe_machine(const MachineFile& file) {
  const bool dated =
      !file.measured.empty() && std::isdigit(static_cast<unsigned char>(file.measured.front()));
  const std::string several =
      file.peers && file.peers->devices > 1 ? fmt::format("{} x ", file.peers->devices) : "";
  return fmt::format("{}{} on {}, {}{}", several, printable(file.device), printable(file.host),
                     dated ? "measured " : "", printable(file.measured));
}

DataType usual_type(const MachineFile& file) {
  const bool has = std::any_of(file.matrix.begin(), file.matrix.end(),
                               [](const MatrixRate& rate) { return rate.type == DataType::bf16; });
  return has && file.backend == "cuda" ? DataType::bf16 : DataType::f32;
}

}  // namespace stowage
