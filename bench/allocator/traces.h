// Traces of allocations for the benchmarks: read from a file of lifetimes, or generated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "stowage/bytes.h"

namespace stowage::bench {

// One request or, with `bytes` 0, the release of block `block`.
struct TraceEvent {
  std::uint32_t block = 0;
  Bytes bytes = 0;
};

struct AllocationTrace {
  std::string name;
  std::uint32_t blocks = 0;
  std::vector<TraceEvent> events;
};

Bytes peak_live_bytes(const AllocationTrace& trace);

// From id,lower,upper,size: asked for at `lower`, released at `upper`, releases first where times are equal.
AllocationTrace read_lifetimes(const std::filesystem::path& path);

// Programs of the kinds that fragment an allocator; all from one seed, in fixed sizes.
std::vector<AllocationTrace> generated_traces(std::uint64_t seed);

}  // namespace stowage::bench
