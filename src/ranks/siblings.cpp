#include "src/ranks/siblings.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

namespace stowage::ranks {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the rank in the environment that the process was started with; before exec a child shows
// its parent's.
std::optional<int> rank_in_environment(pid_t process, const std::string& variable) {
  const std::string environment = '\0' + contents(fmt::format("/proc/{}/environ", process));
  const std::string name = '\0' + variable + '=';
  const std::size_t at = environment.find(name);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view digits = std::string_view(environment).substr(at + name.size());
  int rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  return error == std::errc() ? std::optional(rank) : std::nullopt;
}

enum class End : std::uint8_t { none, by_itself, by_a_signal };

// Returns how the process ended. A zombie, whose parent has not collected it yet, still has its exit code
// (proc(5), /proc/pid/stat).
End end_of(pid_t process) {
  const std::string status = contents(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = status.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= status.size()) return End::by_itself;
  if (status[name_end + 2] != 'Z') return End::none;
  const int code = static_cast<int>(std::strtol(status.c_str() + status.rfind(' '), nullptr, 10));
  return WIFSIGNALED(code) ? End::by_a_signal : End::by_itself;
}

}  // namespace

// Collects the launcher's children; the system lists them by the thread that started them.
void Siblings::look() {
  std::error_code error;
  for (const auto& thread :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", launcher_), error)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) {
      if (ranks_.contains(child)) continue;
      if (const auto rank = rank_in_environment(child, variable_)) ranks_[child] = *rank;
    }
  }
}

// Whether all ranks are seen; not if this process is the child of a script that the launcher started.
bool Siblings::sees_all() const {
  return all_ > 0 && ranks_.contains(::getpid()) && !rank_in_environment(launcher_, variable_);
}

std::vector<int> Siblings::ended(bool all_are_started) {
  look();
  std::set<int> there, ended, killed;
  for (const auto& [process, rank] : ranks_) {
    const End end = end_of(process);
    if (end == End::none)
      there.insert(rank);
    else
      ended.insert(rank);
    if (end == End::by_a_signal) killed.insert(rank);
  }
  // If a rank has ended by itself, the cause may be another rank that is missing.
  if ((all_are_started || !ended.empty()) && sees_all())
    for (int rank = 0; rank < all_; ++rank)
      if (!there.contains(rank)) ended.insert(rank);
  const std::set<int>& told = killed.empty() ? ended : killed;
  return {told.begin(), told.end()};
}

}  // namespace stowage::ranks
