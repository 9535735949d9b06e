#include "offload/plan/validate/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace stowage::validation {
namespace {

Bytes moved(const Plan& plan, InstructionKind kind) {
  Bytes sum = 0;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind == kind) sum += moved_bytes(plan, instruction).bytes();
  }
  return sum;
}

Bytes arena_end(const Plan& plan) {
  Bytes end = 0;
  for (const Lifetime& lifetime : plan.lifetimes) {
    end = std::max(end, lifetime.offset + plan.buckets[lifetime.bucket].bytes);
  }
  return end;
}

// The live sum is largest at the first position of some lifetime.
Bytes live_peak(const Plan& plan) {
  struct Change {
    Position at = 0;
    Bytes bytes = 0;
  };
  std::vector<Change> begins, ends;
  for (const Lifetime& lifetime : plan.lifetimes) {
    if (lifetime.first >= lifetime.last) continue;
    begins.push_back({lifetime.first, plan.buckets[lifetime.bucket].bytes});
    ends.push_back({lifetime.last, plan.buckets[lifetime.bucket].bytes});
  }
  const auto earlier = [](const Change& a, const Change& b) { return a.at < b.at; };
  std::sort(begins.begin(), begins.end(), earlier);
  std::sort(ends.begin(), ends.end(), earlier);
  Bytes live = 0, peak = 0;
  auto end = ends.begin();
  for (std::size_t i = 0; i < begins.size(); ++i) {
    for (; end != ends.end() && end->at <= begins[i].at; ++end) live -= end->bytes;
    live += begins[i].bytes;
    if (i + 1 == begins.size() || begins[i + 1].at > begins[i].at) peak = std::max(peak, live);
  }
  return peak;
}

void compare(const char* what, Bytes declared, Bytes found, Report& report) {
  if (declared != found)
    report.add(fmt::format("the plan declares {} {}, but it is {}", what, declared, found));
}

}  // namespace

void check_totals(const Plan& plan, const Budget& budget, Report& report) {
  Bytes host = 0;
  Bytes pinned = 0;
  for (const Bucket& bucket : plan.buckets) {
    if (bucket.in_ring()) continue;  // check_buckets checks the bucket's bytes in the ring
    host += bucket.on_host() ? bucket.bytes : 0;
    pinned += bucket.pinned() ? bucket.bytes : 0;
  }
  host += plan.ring_bytes + plan.undo_bytes;
  pinned += plan.ring_bytes;
  const Bytes end = arena_end(plan);
  compare("device_peak_bytes", plan.device_peak_bytes, end, report);
  compare("live_peak_bytes", plan.live_peak_bytes, live_peak(plan), report);
  compare("host_bytes", plan.host_bytes, host, report);
  compare("pinned_bytes", plan.pinned_bytes, pinned, report);
  compare("h2d_bytes", plan.h2d_bytes, moved(plan, InstructionKind::prefetch), report);
  compare("d2h_bytes", plan.d2h_bytes, moved(plan, InstructionKind::offload), report);
  if (end > budget.device) {
    report.add(fmt::format("the arena takes {} bytes, the device budget is {}", end, budget.device));
  }
  if (host > budget.host) {
    report.add(
        fmt::format("the host buckets, gradient ring and undo records take {} bytes, the host budget is {}",
                    host, budget.host));
  }
}

}  // namespace stowage::validation
