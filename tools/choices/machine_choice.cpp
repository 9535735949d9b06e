#include "tools/choices/machine_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/machine/chosen_machine.h"
#include "stowage/error.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

constexpr int most_parents = 4;  // folders from a program of the build tree up to the tree's root

bool is_file(const std::string& choice) {
  return choice.find('/') != std::string::npos || choice.ends_with(".json");
}

std::string file_name(const std::string& name) { return name + ".json"; }

MachineFile read_here() {
  try {
    return read_machine_here();
  } catch (const InvalidInput& refused) {
    throw InvalidInput(fmt::format("--machine {}: {}", machine_here, refused.what()));
  }
}

std::string line_of(std::string_view name, const MachineFile& file) {
  return fmt::format("{:<14}{}, {}\n", name, describe_machine(file),
                     file.device_bytes == 0 ? "without a limit" : format_bytes(file.device_bytes));
}

}  // namespace

fs::path machines_folder(const fs::path& program) {
  fs::path folder = program.parent_path();
  for (int i = 0; i < most_parents && folder.has_relative_path(); ++i) {
    std::error_code error;
    fs::path machines = folder / "share/stowage/machines";
    if (fs::is_directory(machines, error)) return machines;
    folder = folder.parent_path();
  }
  return {};
}

fs::path machines_folder() {
  std::error_code error;
  return machines_folder(fs::read_symlink("/proc/self/exe", error));
}

std::vector<std::string> machine_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  if (error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system)
    throw InvalidInput(fmt::format(
        "--machine: {} cannot be read ({}): no more files can be opened; raise the limit (`ulimit -n`), or "
        "close some",
        folder.string(), error.message()));
  for (const fs::directory_entry& entry : entries) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

MachineFile read_machine(const std::string& choice, const fs::path& folder) {
  if (is_file(choice)) return read_machine_file(choice);
  if (choice == machine_here) return read_here();
  const std::vector<std::string> names = machine_names(folder);
  if (std::find(names.begin(), names.end(), choice) != names.end())
    return read_machine_file((folder / file_name(choice)).string());
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  throw InvalidInput(
      fmt::format("--machine: there is no machine \"{}\"; give {}{}here (what stowage calibrate measured), "
                  "or the path of a file that it wrote",
                  choice, known, known.empty() ? "" : ", "));
}

std::string list_machines(const fs::path& folder) {
  std::string text;
  for (const std::string& name : machine_names(folder)) {
    text += line_of(name, read_machine_file((folder / file_name(name)).string()));
  }
  try {
    text += line_of(machine_here, read_machine_here());
  } catch (const InvalidInput&) {  // a file without measurements is no machine yet
  }
  return text;
}

}  // namespace stowage
