#include "src/device/host_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "src/base/printable.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t most_file_bytes = 64_KiB;
constexpr std::size_t most_group_levels = 64;
// Without a limit version 1 writes the largest number of whole pages.
constexpr Bytes no_limit = Bytes{1} << 62;

// Returns at most the first 64 KiB of the file; empty if it cannot be read.
std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most_file_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string_view without_spaces(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? "" : text.substr(begin);
}

// Returns the text behind `name` and spaces on the first line that begins with `name`.
std::optional<std::string_view> field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(name)) return without_spaces(line.substr(name.size()));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

// Returns the number that `text` begins with, times `unit` bytes; nullopt for other text, and for numbers
// beyond 64 bits.
std::optional<Bytes> number(std::optional<std::string_view> text, Bytes unit = 1) {
  Bytes value = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  const bool ends = end == text->data() + text->size() || *end == ' ' || *end == '\n';
  if (error != std::errc() || !ends || value > std::numeric_limits<Bytes>::max() / unit) return std::nullopt;
  return value * unit;
}

// Returns the number that is the file's whole text; nullopt for other text, "max" among it.
std::optional<Bytes> number_in(const std::string& path) {
  const std::string text = contents(path);
  return number(text);
}

Bytes less(Bytes whole, Bytes part) { return whole - std::min(whole, part); }
Bytes sum(Bytes a, Bytes b) { return a + std::min(b, std::numeric_limits<Bytes>::max() - a); }

std::string limit_text(Bytes limit, Bytes taken) {
  return fmt::format("{}, of which {} are taken", format_bytes(limit), format_bytes(taken));
}

void add_machine(const std::string& root, std::vector<HostLimit>& limits) {
  const std::string memory = contents(root + "/proc/meminfo");
  const auto available = number(field(memory, "MemAvailable:"), 1_KiB);
  if (!available) return;
  const Bytes swap = number(field(memory, "SwapFree:"), 1_KiB).value_or(0);
  limits.push_back({fmt::format("this machine's memory ({} available, and {} of swap free)",
                                format_bytes(*available), format_bytes(swap)),
                    sum(*available, swap), "end what else uses it"});
}

// The files of one version of control groups.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* taken;
  const char* droppable[2];  // names in memory.stat of files' pages
};
constexpr GroupFiles version_1{"/sys/fs/cgroup/memory",
                               "memory.limit_in_bytes",
                               "memory.usage_in_bytes",
                               {"total_inactive_file ", "total_active_file "}};
constexpr GroupFiles version_2{
    "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}};

// A control group that limits memory.
struct LimitedGroup {
  const GroupFiles* files;
  std::string name;    // "/user/job"; empty: the topmost
  std::string folder;  // folder with the group's files
  Bytes limit = 0;
};
using LimitedGroups = std::vector<LimitedGroup>;

void add_group(const std::string& root, const GroupFiles& files, const std::string& name,
               LimitedGroups& groups) {
  const std::string folder = root + files.mount + name;
  const auto limit = number_in(fmt::format("{}/{}", folder, files.limit));
  if (limit && *limit < no_limit) groups.push_back({&files, name, folder, *limit});
}

// Adds the group and the groups above it. In a container the path may be one of the host's: then only the
// topmost group exists. A path with ".." counts as the topmost group.
void add_groups(const std::string& root, const GroupFiles& files, std::string name, LimitedGroups& groups) {
  if (name.find("..") != std::string::npos || !name.starts_with('/')) name.clear();
  while (name.ends_with('/')) name.pop_back();
  for (std::size_t level = 0; level < most_group_levels; ++level) {
    add_group(root, files, name, groups);
    if (name.empty()) return;
    name.resize(name.rfind('/'));
  }
}

// Returns the process's groups that limit memory. A line is "ID:CONTROLLERS:PATH"; version 2 has ID 0 and
// no controllers.
LimitedGroups limited_groups(const std::string& root) {
  LimitedGroups groups;
  const std::string text = contents(root + "/proc/self/cgroup");
  std::string_view left = text;
  while (!left.empty()) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path(line.substr(second + 1));
    if (line.substr(0, second + 1) == "0::") add_groups(root, version_2, path, groups);
    if (controllers.find(",memory,") != std::string::npos) add_groups(root, version_1, path, groups);
  }
  return groups;
}

HostLimit limit_of(const LimitedGroup& group) {
  const Bytes all = number_in(fmt::format("{}/{}", group.folder, group.files->taken)).value_or(0);
  const std::string stat = contents(group.folder + "/memory.stat");
  Bytes taken = all;
  for (const char* each : group.files->droppable) taken = less(taken, number(field(stat, each)).value_or(0));
  return {fmt::format("the memory limit of the control group {} ({})",
                      group.name.empty() ? "/" : printable(group.name), limit_text(group.limit, taken)),
          less(group.limit, taken), fmt::format("raise its {}", group.files->limit)};
}

std::optional<Bytes> resource_limit(const std::string& root, std::string_view name) {
  const std::string text = contents(root + "/proc/self/limits");
  return number(field(text, name));
}

struct Resource {
  const char* limit;  // name in proc/self/limits
  const char* taken;  // name in proc/self/status
  const char* name;
  const char* flag;
  // Room that libraries take later, whatever the program does: oneDNN's generated code, and stacks and heaps
  // of threads, most of it never touched. Without this room they end the process (oneDNN 2.6 writes to a
  // buffer that it failed to allocate, glibc cannot load its unwinder of exceptions).
  Bytes for_libraries;
};
constexpr Resource resources[] = {{"Max address space ", "VmSize:", "address space", "ulimit -v", 192_MiB},
                                  {"Max data size ", "VmData:", "data", "ulimit -d", 0}};

// "`ulimit -v` (2.00 GiB)" for each of this process's own limits on memory.
std::string own_limits() {
  std::string text;
  for (const auto& [resource, flag] :
       {std::pair{RLIMIT_AS, "ulimit -v"}, std::pair{RLIMIT_DATA, "ulimit -d"}}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    text += fmt::format("{}`{}` ({})", text.empty() ? "" : " and ", flag, format_bytes(limit.rlim_cur));
  }
  return text;
}

void add_resources(const std::string& root, std::vector<HostLimit>& limits) {
  const std::string status = contents(root + "/proc/self/status");
  for (const Resource& each : resources) {
    const auto limit = resource_limit(root, each.limit);
    if (!limit) continue;
    const Bytes taken = number(field(status, each.taken), 1_KiB).value_or(0);
    limits.push_back({fmt::format("this process's limit on {} ({})", each.name, limit_text(*limit, taken)),
                      less(less(*limit, taken), each.for_libraries),
                      fmt::format("raise it with `{}`", each.flag), true});
  }
}

}  // namespace

std::vector<HostLimit> read_host_limits(const std::string& root) {
  std::vector<HostLimit> limits;
  add_machine(root, limits);
  for (const LimitedGroup& group : limited_groups(root)) limits.push_back(limit_of(group));
  add_resources(root, limits);
  return limits;
}

const HostLimit* tightest(std::span<const HostLimit> limits) {
  const auto least = std::min_element(limits.begin(), limits.end(),
                                      [](const auto& a, const auto& b) { return a.room < b.room; });
  return least == limits.end() ? nullptr : &*least;
}

void require_room_to_measure(Bytes need, std::span<const HostLimit> limits, const std::string& otherwise) {
  const HostLimit* const least = tightest(limits);
  if (least == nullptr || need <= least->room) return;
  throw OutOfMemory(
      fmt::format("host memory: measuring takes {}, and {} are left of {}. To go on, {}{}",
                  format_bytes(need), format_bytes(least->room), least->name, least->remedy, otherwise),
      need, least->room);
}

std::optional<Bytes> group_memory_limit(const std::string& root) {
  std::optional<Bytes> least;
  for (const LimitedGroup& group : limited_groups(root))
    least = std::min(least.value_or(group.limit), group.limit);
  return least;
}

bool memory_may_grow(Bytes seen, const std::string& root) {
  constexpr Bytes tables = 1_GiB;  // kernel, firmware and page tables take this and a quarter of `seen`
  const std::string memory = contents(root + "/proc/meminfo");
  const auto reported = [&](const char* name) { return number(field(memory, name), 1_KiB).value_or(0); };
  const Bytes pages = sum(sum(reported("DirectMap4k:"), reported("DirectMap2M:")), reported("DirectMap1G:"));
  return reported("MemTotal:") > sum(seen, seen / 32) || pages > sum(sum(seen, seen / 4), tables);
}

std::optional<Shortage> shortage_of(const std::exception& error) {
  const bool of_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const auto* const of_system = dynamic_cast<const std::system_error*>(&error);
  const bool of_threads =
      of_system != nullptr && of_system->code() == std::errc::resource_unavailable_try_again;
  if (!of_memory && !of_threads) return std::nullopt;
  const std::string limits = own_limits();
  if (of_threads)
    return Shortage{
        limits.empty()
            ? "no thread could be started: memory or threads (`ulimit -u`) ran out; raise the limit"
            : fmt::format("no thread could be started: memory, of which this process may take what "
                          "{} says, or threads (`ulimit -u`) ran out; raise the limit",
                          limits),
        !limits.empty()};
  if (limits.empty()) return Shortage{"this machine's memory ran out"};
  return Shortage{fmt::format("memory ran out: this process may take what {} says; raise the limit", limits),
                  true};
}

std::optional<Bytes> locked_memory_limit(const std::string& root) {
  return resource_limit(root, "Max locked memory ");
}

}  // namespace stowage
