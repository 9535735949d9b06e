// Plan: fixed offsets for a sequence of requests that is expected to come again.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/replay/recorder.h"

namespace stowage::caching::replay {

struct PlannedRequest {
  Bytes bytes = 0;
  std::uint64_t stream = 0;
  Bytes offset = 0;
  bool has_offset = false;  // false: it outlives the sequence and takes none of the plan's memory
};

// Two requests share bytes only if the first is freed before the second is made. Most plans share bytes
// within a stream only, where the stream's own order makes reuse safe. If that takes too much memory, streams
// share bytes, and the owner lets one stream wait for the other.
struct Plan {
  std::vector<PlannedRequest> requests;  // in the order in which they are made
  // The requests with offsets, in the order of their frees; and for each request the number of these frees
  // that come before it.
  std::vector<std::uint32_t> frees;
  std::vector<std::uint32_t> frees_before;
  Bytes bytes = 0;  // end of the highest block
  // Bytes that have to be mapped at one time: at most `bytes`, and less only if the offsets leave gaps whose
  // granules can serve others.
  Bytes needed = 0;

  bool empty() const { return frees.empty(); }
};

// Places each stream by itself with `place`, or all streams together if that takes 3 % and 2 MiB less. A
// stream whose granules would take over a hundredth more than its live bytes is placed to touch few granules
// at one time instead. Offsets are multiples of `alignment`, a power of two.
Plan make_plan(const std::vector<RecordedRequest>& requests, Bytes alignment, Bytes granule);

}  // namespace stowage::caching::replay
