#include "samples/run/host_need.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "samples/run/checkpoints.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

std::string exact(Bytes bytes) { return fmt::format("{} ({} bytes)", format_bytes(bytes), bytes); }

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
  const Bytes budget = room - std::min(room, need.device);  // the copy comes out of it
  if (budget > need.copy && budget >= 1_MiB)
    flags +=
        fmt::format(", or have the planner look for a plan within it: --host-memory {}MiB", budget / 1_MiB);
  return flags;
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

}  // namespace stowage::samples
