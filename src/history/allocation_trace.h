// A program's requests to its allocator, in order: plain data, from lifetimes or from a recorded history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "stowage/placement.h"

namespace stowage {

// Number of an allocation, from 0 in order; no number is used twice.
using AllocationId = std::uint32_t;

enum class TraceKind : std::uint8_t { allocate, free };

struct TraceOperation {
  TraceKind kind = TraceKind::allocate;
  AllocationId id = 0;
  Bytes bytes = 0;           // requested size of the allocation, also on its free
  std::uint32_t stream = 0;  // the allocation's stream; streams are numbered from 0 by first use
  friend bool operator==(const TraceOperation&, const TraceOperation&) = default;
};

// An allocation is freed once, after it was made, or stays until the end.
struct AllocationTrace {
  std::vector<TraceOperation> operations;
  // Operations before which an iteration begins, ascending. Operations before the first belong to no
  // iteration. Empty: the iterations are unknown.
  std::vector<std::size_t> iterations;
  std::size_t allocations = 0;  // number of allocations; ids are below it
  friend bool operator==(const AllocationTrace&, const AllocationTrace&) = default;
};

// Adds operations to a trace, numbering allocations.
class TraceBuilder {
 public:
  AllocationId allocate(Bytes bytes, std::uint32_t stream = 0);
  void free(AllocationId id);  // requires an allocation that was not freed
  void begin_iteration();
  AllocationTrace finish() && { return std::move(trace_); }

 private:
  AllocationTrace trace_;
  std::vector<std::size_t> made_at_;  // indices of the allocating operations, by id
};

// Returns one iteration on one stream: each item is allocated at `first` and freed at `last`. At equal times
// frees come first, and then the order of the items counts.
AllocationTrace trace_of_lifetimes(std::span<const PlacementItem> items);

// Returns the operations repeated `times` times, each time as an iteration of new allocations. Requires that
// the trace frees all allocations.
AllocationTrace repeated(const AllocationTrace& trace, std::size_t times);

// Returns the most requested bytes that are allocated at one time.
Bytes peak_live_bytes(const AllocationTrace& trace);

// Numbers streams from 0 by first use.
inline constexpr std::size_t most_streams = 4096;

class StreamNumbers {
 public:
  // Returns nullopt once there are more than most_streams streams, for any stream.
  std::optional<std::uint32_t> number_of(std::uint64_t stream) {
    const auto [place, added] = numbers_.try_emplace(stream, static_cast<std::uint32_t>(numbers_.size()));
    if (numbers_.size() > most_streams) return std::nullopt;
    return place->second;
  }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
};

}  // namespace stowage
