#include "stowage/rank_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "stowage/error.h"

namespace stowage {
namespace {

using Variable = std::function<const char*(const char* name)>;

std::optional<int> number(const Variable& variable, const char* name) {
  const char* const text = variable(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

// Returns a number from a variable of processes that find each other over TCP.
int number_of(const Variable& variable, const char* name, const std::string& by, int least, int most) {
  const auto value = number(variable, name);
  if (value && *value >= least && *value <= most) return *value;
  const char* const text = variable(name);
  const std::string range = most == std::numeric_limits<int>::max() ? fmt::format("{} or more", least)
                                                                    : fmt::format("{} to {}", least, most);
  throw InvalidInput(fmt::format("{}={}, by {}: let it be {}, or unset RANK to train alone", name,
                                 text == nullptr ? "" : text, by, range));
}

// Checked first: torchrun's workers may run within the job of another launcher, as in an interactive step
// of Slurm.
bool is_by_torchrun(const Variable& variable) {
  return variable("TORCHELASTIC_RUN_ID") != nullptr && variable("RANK") != nullptr;
}

RankLaunch launch_over_tcp(const Variable& variable) {
  constexpr std::array<const char*, 4> needed = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  constexpr int last_port = std::numeric_limits<std::uint16_t>::max();
  const bool by_torchrun = is_by_torchrun(variable);
  const auto is_set = [&](const char* name) { return variable(name) != nullptr; };
  const std::string by = by_torchrun ? "torchrun" : "the environment";
  if (!by_torchrun && !std::all_of(needed.begin(), needed.end(), is_set)) {
    // A script may set some of these for its own purposes, but hardly a rank among several.
    if (number(variable, "WORLD_SIZE").value_or(1) > 1 && number(variable, "RANK"))
      throw InvalidInput(
          fmt::format("RANK={} of WORLD_SIZE={}, by {}, without MASTER_ADDR and MASTER_PORT: let them be "
                      "where rank 0 listens, or unset RANK to train alone",
                      variable("RANK"), variable("WORLD_SIZE"), by));
    return {};
  }
  RankLaunch launch;
  const int size = number_of(variable, "WORLD_SIZE", by, 1, std::numeric_limits<int>::max());
  if (size == 1) return {};
  launch.size = size;
  launch.rank = number_of(variable, "RANK", by, 0, size - 1);
  launch.here = number(variable, "LOCAL_WORLD_SIZE").value_or(0);
  launch.by = by;
  if (by_torchrun) launch.rank_variable = "RANK";
  if (!is_set("MASTER_ADDR") || variable("MASTER_ADDR")[0] == '\0')
    throw InvalidInput(fmt::format(
        "MASTER_ADDR=, by {}: let it be the machine of rank 0, or unset RANK to train alone", by));
  launch.host = variable("MASTER_ADDR");
  const int next = by_torchrun ? 1 : 0;  // torchrun's agent listens at MASTER_PORT
  launch.port = static_cast<std::uint16_t>(
      is_set("STOWAGE_PORT") ? number_of(variable, "STOWAGE_PORT", by, 1, last_port)
                             : number_of(variable, "MASTER_PORT", by, 1, last_port - next) + next);
  return launch;
}

}  // namespace

RankLaunch read_launch(const Variable& variable) {
  if (is_by_torchrun(variable)) return launch_over_tcp(variable);
  struct Launcher {
    const char* size;
    const char* rank;
    const char* here;
    const char* sign;  // another variable that must be set
    const char* name;
  };
  // mpirun within a Slurm job sets its variables beside Slurm's, so it comes first.
  constexpr Launcher launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun"},
                                    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "", "PMIX_RANK", "srun"},
                                    {"PMI_SIZE", "PMI_RANK", "", "PMI_RANK", "mpiexec"}};
  for (const Launcher& launcher : launchers) {
    const auto size = number(variable, launcher.size), rank = number(variable, launcher.rank);
    if (!size || !rank || variable(launcher.sign) == nullptr) continue;
    if (*size <= 1 || *rank >= *size) continue;
    return {*rank, *size, number(variable, launcher.here).value_or(0), launcher.name, launcher.rank, {}, 0};
  }
  return launch_over_tcp(variable);
}

RankLaunch read_launch() {
  return read_launch([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace stowage
