#include "tools/replay/replay.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t operations_to_time = 300'000;
constexpr std::size_t most_rounds = 50;
constexpr std::chrono::milliseconds most_time{500};  // time before the last round, plans included

void play(const TraceOperation& operation, AllocatorModel& model) {
  if (operation.kind == TraceKind::free) {
    model.free(operation.id);
  } else {
    model.allocate(operation.id, operation.bytes, operation.stream);
  }
}

void count(ReplayPeaks& peaks, Bytes live, Bytes reserved) {
  ++peaks.operations;
  peaks.live_bytes = std::max(peaks.live_bytes, live);
  peaks.reserved_bytes = std::max(peaks.reserved_bytes, reserved);
}

using Clock = std::chrono::steady_clock;

// Returns the nanoseconds of the operations from `begin` on, without the beginnings of iterations.
double timed(const AllocationTrace& trace, std::size_t begin, AllocatorModel& model) {
  std::size_t next = 0;
  std::chrono::nanoseconds total{0};
  for (std::size_t i = 0; i < trace.operations.size();) {
    for (; next < trace.iterations.size() && trace.iterations[next] <= i; ++next) model.begin_iteration();
    const std::size_t end = next < trace.iterations.size() ? trace.iterations[next] : trace.operations.size();
    const auto start = Clock::now();
    const bool counts = i >= begin;
    for (; i < end; ++i) play(trace.operations[i], model);
    if (counts) total += Clock::now() - start;
  }
  return static_cast<double>(total.count());
}

}  // namespace

double ReplayPeaks::ratio() const {
  return live_bytes == 0 ? 0 : static_cast<double>(reserved_bytes) / static_cast<double>(live_bytes);
}

ReplayResult replay(const AllocationTrace& trace, AllocatorModel& model) {
  ReplayResult result;
  Bytes live = 0;
  std::size_t iteration = 0;
  for (std::size_t i = 0; i < trace.operations.size(); ++i) {
    for (; iteration < trace.iterations.size() && trace.iterations[iteration] <= i; ++iteration)
      model.begin_iteration();
    const TraceOperation& operation = trace.operations[i];
    const bool is_warm = model.is_warm();
    try {
      play(operation, model);
    } catch (const OutOfMemory& error) {
      result.out_of_memory = true;
      result.error = error.what();
      return result;
    }
    live += operation.kind == TraceKind::free ? -operation.bytes : operation.bytes;
    const Bytes reserved = model.reserved_bytes();
    count(result.all, live, reserved);
    if (iteration <= 1) count(result.first, live, reserved);
    if (is_warm) count(result.warm, live, reserved);
  }
  return result;
}

double nanoseconds_per_operation(const AllocationTrace& trace, const MakeModel& make_model) {
  const std::size_t begin = trace.iterations.size() < 2 ? 0 : trace.iterations[1];
  const std::size_t operations = trace.operations.size() - begin;
  if (operations == 0) return 0;
  const std::size_t rounds =
      std::clamp<std::size_t>(operations_to_time / trace.operations.size(), 1, most_rounds);
  double best = std::numeric_limits<double>::max();
  const auto start = Clock::now();
  try {
    for (std::size_t i = 0; i == 0 || (i < rounds && Clock::now() - start < most_time); ++i) {
      const std::unique_ptr<AllocatorModel> model = make_model();
      best = std::min(best, timed(trace, begin, *model));
    }
  } catch (const OutOfMemory&) {
    return 0;
  }
  return best / static_cast<double>(operations);
}

}  // namespace stowage
