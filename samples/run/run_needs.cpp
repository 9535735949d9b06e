#include "samples/run/run_needs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "samples/run/checkpoints.h"
#include "stowage/checkpoint.h"
#include "stowage/error.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

std::string parts_of(const HostNeed& need) {
  std::vector<std::string> parts = {fmt::format("{} for the plan's buckets ({} page-locked)",
                                                format_bytes(need.buckets), format_bytes(need.pinned))};
  const auto add = [&](Bytes bytes, const char* what) {
    if (bytes > 0) parts.push_back(fmt::format("{} {}", format_bytes(bytes), what));
  };
  add(need.undo, "for undo records of early updates");
  add(need.copy, "for the copy that checkpoints are written from");
  add(need.device, "for the simulated device's own memory");
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Flags with which the run may fit.
std::string flags_for(const HostNeed& need, Bytes room) {
  std::string flags;
  if (need.copy > 0) flags = ", or take no copy with --checkpoint-blocking";
  // The copy for checkpoints comes out of the budget.
  const Bytes budget = room - std::min(room, need.device);
  if (budget > need.copy && budget >= 1_MiB)
    flags +=
        fmt::format(", or have the planner look for a plan within it: --host-memory {}MiB", budget / 1_MiB);
  return flags;
}

namespace fs = std::filesystem;

std::string folder_of(const std::string& path) {
  std::string name = path;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  const fs::path folder = fs::path(name).parent_path();
  return folder.empty() ? "." : folder.string();
}

Bytes parameter_bytes(const Graph& graph) {
  Bytes bytes = 0;
  for (const Tensor& tensor : graph.tensors)
    if (tensor.kind == TensorKind::parameter) bytes += tensor.bytes();
  return bytes;
}

// Returns the number of checkpoints beside those that are there: an old one goes when the new one is written.
std::uint64_t new_checkpoints(const Options& options, std::uint64_t first_step) {
  if (options.steps <= first_step) return 0;
  const auto there = static_cast<std::uint64_t>(list_checkpoints(options.checkpoint_folder).size());
  std::uint64_t saves =
      (options.steps - 1) / options.checkpoint_every + 1 - first_step / options.checkpoint_every;
  if (options.keep_best && options.evaluate_every > 0)
    saves += (options.steps - first_step) / options.evaluate_every;
  const std::uint64_t most = options.keep + 1 + (options.keep_best ? 1 : 0);
  return std::max(there + 1, std::min(there + saves, most)) - there;
}

}  // namespace

HostNeed host_need(const Options& options, const Graph& graph, const Plan& plan, bool on_card,
                   std::int64_t devices) {
  const auto count = static_cast<Bytes>(devices);
  return {.buckets = count * (plan.host_bytes - plan.undo_bytes),
          .pinned = count * plan.pinned_bytes,
          .undo = count * plan.undo_bytes,
          .copy = copy_bytes(options, graph),
          .device = on_card ? 0 : count * plan.device_peak_bytes};
}

void require_host_memory(const HostNeed& need, std::span<const HostLimit> limits) {
  const HostLimit* const least = tightest(limits);
  if (least == nullptr || need.total() <= least->room) return;
  throw OutOfMemory(fmt::format("host memory: {} needed, {} left of {}: {}. To go on, {}{}",
                                exact(need.total()), exact(least->room), least->name, parts_of(need),
                                least->remedy, flags_for(need, least->room)),
                    need.total(), least->room);
}

std::vector<DiskNeed> disk_needs(const Options& options, const Graph& graph, std::uint64_t first_step) {
  std::vector<DiskNeed> needs;
  const auto add = [&](std::string output, std::string folder, Bytes bytes) {
    if (bytes > 0) needs.push_back({std::move(output), std::move(folder), bytes});
  };
  if (!options.checkpoint_folder.empty() && !options.trains_nothing) {
    const std::uint64_t count = new_checkpoints(options, first_step);
    const Bytes each = checkpoint_bytes(checkpoint_tensors(graph));
    add(fmt::format("--checkpoint {}: {} checkpoint{} of {}", options.checkpoint_folder, count,
                    count == 1 ? "" : "s", format_bytes(each)),
        options.checkpoint_folder, count * each);
  }
  const Bytes parameters = parameter_bytes(graph);
  for (const auto& [flag, path] :
       {std::pair{"--weights", options.weights_file}, std::pair{"--export", options.export_folder}})
    if (!path.empty())
      add(fmt::format("{} {}: {}", flag, path, format_bytes(parameters)), folder_of(path), parameters);
  return needs;
}

std::optional<Disk> disk_of(const std::string& folder) {
  struct stat place {};
  struct statvfs disk {};
  if (::stat(folder.c_str(), &place) != 0 || ::statvfs(folder.c_str(), &disk) != 0) return std::nullopt;
  return Disk{place.st_dev, static_cast<Bytes>(disk.f_bavail) * disk.f_frsize};
}

std::vector<std::string> disk_warnings(const std::vector<DiskNeed>& needs,
                                       const std::function<std::optional<Disk>(const std::string&)>& disk) {
  struct Together {
    Bytes room = 0;
    std::string folder, outputs;
    Bytes bytes = 0;
  };
  std::map<std::uint64_t, Together> disks;
  for (const DiskNeed& need : needs) {
    const auto found = disk(need.folder);
    if (!found) continue;
    Together& all = disks[found->id];
    if (all.bytes == 0) all = {found->room, need.folder, "", 0};
    all.bytes += need.bytes;
    all.outputs += (all.outputs.empty() ? "" : "; ") + need.output;
  }
  std::vector<std::string> lines;
  for (const auto& [id, all] : disks)
    if (all.bytes > all.room)
      lines.push_back(fmt::format(
          "the disk of {} has {} ({} bytes) left, and this run writes {} ({} bytes) there ({}): free some, "
          "or give a path elsewhere",
          all.folder, format_bytes(all.room), all.room, format_bytes(all.bytes), all.bytes, all.outputs));
  return lines;
}

}  // namespace stowage::samples
