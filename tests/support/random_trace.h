// Operations of an allocator at random.
#pragma once

#include <random>
#include <vector>

#include "src/history/allocation_trace.h"

namespace stowage::test {

// Returns a trace with sizes from a byte to 32 MiB, on three streams, with iterations of any length.
inline AllocationTrace random_trace(std::mt19937_64& random, int operations) {
  TraceBuilder builder;
  std::vector<AllocationId> live;
  for (int i = 0; i < operations; ++i) {
    if (random() % 64 == 0) builder.begin_iteration();
    if (!live.empty() && random() % 5 < 2) {
      std::swap(live[random() % live.size()], live.back());
      builder.free(live.back());
      live.pop_back();
    } else {
      const Bytes most = Bytes{1} << (random() % 25 + 1);
      live.push_back(builder.allocate(1 + random() % most, static_cast<std::uint32_t>(random() % 3)));
    }
  }
  return std::move(builder).finish();
}

}  // namespace stowage::test
