#include "samples/report/unpinned.h"

#include <algorithm>

#include "src/device/host_limits.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

// The rate of pageable memory that costs are told for, as a share of the link's. None is measured.
constexpr double pageable_share = 0.5;

double pageable_seconds(const Unpinned& unpinned, const Machine& machine) {
  return (static_cast<double>(unpinned.in_bytes) / machine.h2d.bytes_per_second +
          static_cast<double>(unpinned.out_bytes) / machine.d2h.bytes_per_second) /
         pageable_share;
}

}  // namespace

Unpinned unpinned_of(const Plan& plan, std::span<const BucketId> buckets) {
  Unpinned result;
  bool ring = false;  // in which gradients take turns
  for (const BucketId id : buckets) {
    ring |= plan.buckets[id].in_ring();
    if (!plan.buckets[id].in_ring()) result.bytes += plan.buckets[id].bytes;
  }
  if (ring) result.bytes += plan.ring_bytes;
  for (const Instruction& each : plan.instructions) {
    if (!is_transfer(each.kind)) continue;
    const BucketId moved = plan.lifetimes[each.lifetime].bucket;
    if (std::find(buckets.begin(), buckets.end(), moved) == buckets.end()) continue;
    Bytes& bytes = each.kind == InstructionKind::prefetch ? result.in_bytes : result.out_bytes;
    bytes += moved_bytes(plan, each).bytes();
  }
  return result;
}

std::string unpinned_note(const Plan& plan, const Machine& machine, std::span<const BucketId> buckets) {
  if (buckets.empty()) return "";
  const Unpinned unpinned = unpinned_of(plan, buckets);
  Lines lines;
  lines.add("unpinned",
            "{} ({} bytes) of {} could not be page-locked and are ordinary memory; the numbers stay the same",
            format_bytes(unpinned.bytes), unpinned.bytes, format_bytes(plan.pinned_bytes));
  lines.add("  cost",
            "{} of it in and {} out per step; a card moves it slower than page-locked memory, and nothing "
            "beside it: "
            "{} of each step, if at half the link's rate",
            format_bytes(unpinned.in_bytes), format_bytes(unpinned.out_bytes),
            format_seconds(pageable_seconds(unpinned, machine)));
  const auto locked = locked_memory_limit();
  lines.add(
      "  instead",
      "free memory of the host, or plan for less of it with --host-memory{}; --pageable never ends a run "
      "here",
      locked ? ", or raise `ulimit -l` (" + format_bytes(*locked) + ") where the driver goes by it" : "");
  lines.gap();
  return std::move(lines).text();
}

}  // namespace stowage::samples
