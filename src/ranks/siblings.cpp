#include "src/ranks/siblings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>

namespace stowage::ranks {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// As it was given to the program: before that a child has its parent's.
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

// Also false where its parent has not asked for its end yet.
bool lives(pid_t process) {
  const std::string status = contents(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = status.rfind(") ");
  return name_end != std::string::npos && name_end + 2 < status.size() && status[name_end + 2] != 'Z';
}

}  // namespace

// Each thread of the launcher has the children that it has started.
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

// Not where this process is the child of a script that is the launcher's.
bool Siblings::sees_all() const {
  return all_ > 0 && ranks_.contains(::getpid()) && !rank_in_environment(launcher_, variable_);
}

std::optional<int> Siblings::ended(bool all_are_started) {
  look();
  std::set<int> there;
  for (const auto& [process, rank] : ranks_) {
    if (!lives(process)) return rank;
    there.insert(rank);
  }
  if (!all_are_started || !sees_all()) return std::nullopt;
  for (int rank = 0; rank < all_; ++rank)
    if (!there.contains(rank)) return rank;
  return std::nullopt;
}

}  // namespace stowage::ranks
