// What a program asked of its allocator, in order: plain data, from lifetimes or from a recorded history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "stowage/placement.h"

namespace stowage {

// Of an allocation, from 0 in the order in which they are made; none is used twice.
using AllocationId = std::uint32_t;

enum class TraceKind : std::uint8_t { allocate, free };

struct TraceOperation {
  TraceKind kind = TraceKind::allocate;
  AllocationId id = 0;
  Bytes bytes = 0;           // of the allocation, as it was asked for, on its free too
  std::uint32_t stream = 0;  // of the allocation, numbered from 0 by first use
  friend bool operator==(const TraceOperation&, const TraceOperation&) = default;
};

// An allocation is freed once, after it was made, or stays until the end.
struct AllocationTrace {
  std::vector<TraceOperation> operations;
  // Operations before which an iteration begins, ascending. Those before the first belong to none. Empty:
  // where iterations begin is not known.
  std::vector<std::size_t> iterations;
  std::size_t allocations = 0;  // ids are less
  friend bool operator==(const AllocationTrace&, const AllocationTrace&) = default;
};

// Adds operations to a trace, numbering allocations.
class TraceBuilder {
 public:
  AllocationId allocate(Bytes bytes, std::uint32_t stream = 0);
  void free(AllocationId id);  // allocated and not freed
  void begin_iteration();
  AllocationTrace finish() && { return std::move(trace_); }

 private:
  AllocationTrace trace_;
  std::vector<std::size_t> made_at_;  // operations, by id
};

// One iteration on one stream: each item allocated at `first`, freed at `last`; at equal times frees come
// first, and otherwise the order is that of the items.
AllocationTrace trace_of_lifetimes(std::span<const PlacementItem> items);

// The same operations `times` times over, each time an iteration of new allocations. Nothing may be left
// allocated at the end.
AllocationTrace repeated(const AllocationTrace& trace, std::size_t times);

// Most requested bytes allocated at one time.
Bytes peak_live_bytes(const AllocationTrace& trace);

// Numbers streams from 0 by first use.
inline constexpr std::size_t most_streams = 4096;

class StreamNumbers {
 public:
  // Nothing for one stream more than most_streams.
  std::optional<std::uint32_t> number_of(std::uint64_t stream) {
    const auto [place, added] = numbers_.try_emplace(stream, static_cast<std::uint32_t>(numbers_.size()));
    if (numbers_.size() > most_streams) return std::nullopt;
    return place->second;
  }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
};

}  // namespace stowage
