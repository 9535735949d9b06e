// Segments: the allocator's reserved address range and the device memory that is mapped into it, by granule.
//
// A run of granules is mapped in one call of the device, as pieces (granule_runs.h) that leave one by one.
// Offsets count from `base`. Not synchronised, but for `base` and `granule`, which never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/gap_index.h"
#include "allocator/granule_runs.h"
#include "stowage/device.h"

namespace stowage::caching {

struct SegmentCounters {
  std::uint64_t maps = 0;    // device calls that gave memory
  std::uint64_t unmaps = 0;  // number of granules given back
};

class Segments {
 public:
  // Reserves `bytes` of address space, rounded to granules of 2 MiB (or the device's, where they are larger).
  Segments(Device& device, Bytes bytes);
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;
  // Unmaps everything. REQUIRES: work that touched it was synchronised.
  ~Segments();

  std::byte* base() const { return base_; }
  Bytes bytes() const { return bytes_; }
  Bytes granule() const { return granule_; }
  const Pieces& pieces() const { return pieces_; }
  std::uint64_t mapped() const { return mapped_; }  // unit: granules
  const SegmentCounters& counters() const { return counters_; }

  // Maps `runs`, none of which is mapped. If the device throws, unmaps what this call mapped and throws on;
  // `left` gets the granules that the device would not take back.
  void map(const std::vector<Interval>& runs, std::vector<Interval>& left);
  // Unmaps `runs`, whole pieces that nobody uses. Returns the runs that the device would not take back.
  std::vector<Interval> unmap(const std::vector<Interval>& runs) noexcept;

 private:
  bool unmap_run(Interval run) noexcept;

  Device& device_;
  Bytes granule_;
  Bytes bytes_;
  std::byte* base_;
  std::uint64_t mapped_ = 0;
  Pieces pieces_;
  SegmentCounters counters_;
};

}  // namespace stowage::caching
