// Fixed offsets for a sequence of requests that is expected to come again.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/request_log.h"

namespace stowage {

struct PlannedRequest {
  Bytes bytes = 0;
  std::uint64_t stream = 0;
  Bytes offset = 0;
  bool has_offset = false;  // not: it outlives the sequence, and is no part of the plan's memory
};

// Two requests share bytes only where the first is freed before the second is made. They are of one stream,
// so that the order of the stream's work is all that their reuse needs, unless that takes too much memory:
// then the owner lets one stream wait for the other.
struct PoolPlan {
  std::vector<PlannedRequest> requests;  // in the order in which they are made
  // Requests with offsets in the order of their frees, and how many of these come before each request.
  std::vector<std::uint32_t> frees;
  std::vector<std::uint32_t> frees_before;
  Bytes bytes = 0;
  // That have to be backed at once. No more than `bytes`, and as much unless the offsets leave gaps: then
  // granules that no block touches serve others.
  Bytes backed = 0;

  // A plan that holds nothing is none.
  bool empty() const { return frees.empty(); }
};

// Each stream is placed apart, by `place`, or all together where that takes 3 % and 2 MiB less. Where a
// stream's granules take over a hundredth more than its live bytes, it is placed to touch few granules at one
// time instead. Offsets are multiples of `alignment`, a power of two.
PoolPlan make_pool_plan(const std::vector<LoggedRequest>& requests, Bytes alignment, Bytes granule);

}  // namespace stowage
