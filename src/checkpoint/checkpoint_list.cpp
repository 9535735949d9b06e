#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "src/checkpoint/checkpoint_tensors.h"
#include "src/checkpoint/state_json.h"
#include "src/model_files/files.h"
#include "stowage/checkpoint.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

// Returns the step of a name that checkpoint_name makes; nullopt for any other name.
std::optional<std::uint64_t> step_of(std::string_view name) {
  const std::optional<std::uint64_t> step = step_named(name);
  return step && checkpoint_name(*step) == name ? step : std::nullopt;
}

// Returns the path of the newest complete checkpoint from `from` on; empty if there is none.
std::string newest_good(const std::vector<CheckpointName>& names, std::size_t from) {
  for (std::size_t i = from; i < names.size(); ++i) {
    try {
      return Checkpoint(names[i].path).folder();
    } catch (const Error&) {
      continue;
    }
  }
  return {};
}

}  // namespace

std::optional<std::uint64_t> step_named(std::string_view name) {
  if (!name.starts_with(checkpoint_prefix)) return {};
  const std::string_view digits = name.substr(checkpoint_prefix.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  return step;
}

std::string checkpoint_name(std::uint64_t step) { return fmt::format("{}{:012}", checkpoint_prefix, step); }

std::vector<CheckpointName> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointName> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const auto step = step_of(entry->path().filename().string());
    if (step) names.push_back({entry->path().string(), *step});
  }
  if (error)
    throw InvalidInput(
        fmt::format("{}: its checkpoints cannot be listed ({}); name a folder that can be read", folder,
                    error.message()));
  std::sort(names.begin(), names.end(),
            [](const CheckpointName& a, const CheckpointName& b) { return a.step > b.step; });
  return names;
}

std::optional<BestCheckpoint> find_best_checkpoint(const std::string& folder) {
  std::error_code error;
  const fs::path target = fs::read_symlink(folder + std::string(best_link), error);
  const auto step = step_of(target.native());  // nullopt unless the link is a checkpoint's plain name
  if (error || !step) return {};
  const std::string path = folder + "/" + target.string();
  try {
    const std::string file = path + std::string(state_file);
    const CheckpointState state =
        state_from_json(read_small_file(file, largest_state_json, "name a whole checkpoint"), file);
    if (!state.score || state.step != *step) return {};
    return BestCheckpoint{path, state.step, *state.score};
  } catch (const Error&) {
    return {};
  }
}

std::optional<Checkpoint> open_newest_checkpoint(const std::string& folder) {
  const std::vector<CheckpointName> names = list_checkpoints(folder);
  if (names.empty()) return {};
  try {
    return Checkpoint(names.front().path);
  } catch (const Error& error) {
    const std::string good = newest_good(names, 1);
    throw DamagedCheckpoint(good.empty() ? fmt::format("{}. No other checkpoint there is good", error.what())
                                         : fmt::format("{}. The newest good one is {}", error.what(), good),
                            good);
  }
}

}  // namespace stowage
