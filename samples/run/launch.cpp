#include "samples/run/launch.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace stowage::samples {
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

}  // namespace

Launch read_launch(const Variable& variable) {
  struct Launcher {
    const char* size;
    const char* rank;
    const char* here;
    const char* sign;  // must be there, too
    const char* name;
  };
  // mpirun within a Slurm job sets its own beside Slurm's, so it comes first.
  constexpr Launcher launchers[] = {
      {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK",
       "mpirun"},
      {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "", "PMIX_RANK", "srun"},
      {"PMI_SIZE", "PMI_RANK", "", "PMI_RANK", "mpiexec"},
      {"WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "torchrun"}};
  for (const Launcher& launcher : launchers) {
    const auto size = number(variable, launcher.size), rank = number(variable, launcher.rank);
    if (!size || !rank || variable(launcher.sign) == nullptr) continue;
    if (*size <= 1 || *rank >= *size) return {};
    return {*rank, *size, number(variable, launcher.here).value_or(0), launcher.name, launcher.rank};
  }
  return {};
}

Launch read_launch() {
  return read_launch([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace stowage::samples
