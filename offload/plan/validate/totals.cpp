#include "offload/plan/validate/totals.h"

#include <fmt/format.h>

#include <algorithm>

namespace stowage::validation {
namespace {

Bytes moved(const Plan& plan, InstructionKind kind) {
  Bytes sum = 0;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind == kind) sum += plan.buckets[plan.lifetimes[instruction.lifetime].bucket].bytes;
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
  Bytes peak = 0;
  for (const Lifetime& at : plan.lifetimes) {
    Bytes live = 0;
    for (const Lifetime& other : plan.lifetimes) {
      if (other.first <= at.first && at.first < other.last) live += plan.buckets[other.bucket].bytes;
    }
    peak = std::max(peak, live);
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
    host += bucket.on_host ? bucket.bytes : 0;
    pinned += bucket.pinned ? bucket.bytes : 0;
  }
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
    report.add(fmt::format("the host buckets take {} bytes, the host budget is {}", host, budget.host));
  }
}

}  // namespace stowage::validation
