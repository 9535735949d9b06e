#include "src/history/allocation_trace.h"

#include <algorithm>
#include <numeric>

namespace stowage {

AllocationId TraceBuilder::allocate(Bytes bytes, std::uint32_t stream) {
  const auto id = static_cast<AllocationId>(trace_.allocations++);
  made_at_.push_back(trace_.operations.size());
  trace_.operations.push_back({TraceKind::allocate, id, bytes, stream});
  return id;
}

void TraceBuilder::free(AllocationId id) {
  TraceOperation operation = trace_.operations[made_at_[id]];
  operation.kind = TraceKind::free;
  trace_.operations.push_back(operation);
}

void TraceBuilder::begin_iteration() { trace_.iterations.push_back(trace_.operations.size()); }

AllocationTrace trace_of_lifetimes(std::span<const PlacementItem> items) {
  struct Moment {
    std::int64_t time = 0;
    bool is_free = false;
    std::size_t item = 0;
  };
  std::vector<Moment> moments;
  moments.reserve(2 * items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    moments.push_back({items[i].first, false, i});
    moments.push_back({items[i].last, true, i});
  }
  std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    if (a.time != b.time) return a.time < b.time;
    return a.is_free != b.is_free ? a.is_free : a.item < b.item;
  });
  TraceBuilder builder;
  builder.begin_iteration();
  std::vector<AllocationId> ids(items.size());
  for (const Moment& moment : moments) {
    if (moment.is_free) {
      builder.free(ids[moment.item]);
    } else {
      ids[moment.item] = builder.allocate(items[moment.item].bytes);
    }
  }
  return std::move(builder).finish();
}

AllocationTrace repeated(const AllocationTrace& trace, std::size_t times) {
  AllocationTrace result;
  result.operations.reserve(times * trace.operations.size());
  for (std::size_t i = 0; i < times; ++i) {
    result.iterations.push_back(result.operations.size());
    for (TraceOperation operation : trace.operations) {
      operation.id += static_cast<AllocationId>(result.allocations);
      result.operations.push_back(operation);
    }
    result.allocations += trace.allocations;
  }
  return result;
}

Bytes peak_live_bytes(const AllocationTrace& trace) {
  Bytes live = 0, peak = 0;
  for (const TraceOperation& operation : trace.operations) {
    if (operation.kind == TraceKind::free) {
      live -= operation.bytes;
    } else {
      live += operation.bytes;
      peak = std::max(peak, live);
    }
  }
  return peak;
}

}  // namespace stowage
