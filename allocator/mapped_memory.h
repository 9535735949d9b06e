// MappedMemory: the device memory behind the caching allocator's addresses, and whose it is.
//
// Memory is mapped and unmapped by granules, up to a limit. A mapped granule is listed once, by its
// `Granules`: a pool's PoolHeap or the plans' Region, which decide over it. Invariants between calls:
//   - a granule is mapped exactly if its `Granules` list it;
//   - the sum of `reserved` over all pools is the number of mapped granules; those of plans count to the
//     default pool.
// A call of the device that fails keeps both: granules that the device would not take back stay listed.
//
// REQUIRES, for all but base(), bytes() and granule(): the allocator's mutex.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include "allocator/history.h"
#include "allocator/segments.h"
#include "allocator/stream_cache.h"
#include "stowage/error.h"

namespace stowage::caching {

class MappedMemory {
 public:
  // Reserves `range` bytes of addresses and maps nothing. Writes all maps and unmaps to `history`.
  MappedMemory(Device& device, Bytes range, Bytes limit, History& history)
      : segments_(device, range), history_(history), limit_(limit) {}

  std::byte* base() const { return segments_.base(); }
  Bytes bytes() const { return segments_.bytes(); }
  Bytes granule() const { return segments_.granule(); }

  Bytes limit() const { return limit_; }
  void set_limit(Bytes limit) { limit_ = limit; }  // mapped memory beyond the limit stays mapped
  std::uint64_t mapped() const { return segments_.mapped(); }
  std::uint64_t peak_mapped() const { return peak_mapped_; }
  void reset_peak() { peak_mapped_ = mapped(); }
  const SegmentCounters& counters() const { return segments_.counters(); }
  const Pieces& pieces() const { return segments_.pieces(); }

  // Returns how many more granules may be mapped within the limit.
  std::uint64_t room() const {
    const std::uint64_t granules = limit_ / granule();
    return granules - std::min(granules, mapped());
  }
  // Returns how many granules are mapped beyond the limit, because it was lowered.
  std::uint64_t beyond_limit() const { return mapped() - std::min(limit_ / granule(), mapped()); }

  // Maps `runs` for `granules`, whose memory counts to `pool`. Returns false if that failed: then nothing
  // more is mapped than before, but for granules that the device would not take back. `failure` says why,
  // unless the device has less memory than the limit says. REQUIRES: none of `runs` is mapped.
  template <class Granules>
  bool map(Granules& granules, Pool& pool, const std::vector<Interval>& runs, std::exception_ptr& failure);

  // Unmaps `runs` of `granules`, which count to `pool`. Returns how many granules the device took back.
  // REQUIRES: `runs` are whole pieces, no block touches them, and no lane uses them any more.
  template <class Granules>
  std::uint64_t unmap(Granules& granules, Pool& pool, const std::vector<Interval>& runs);

  // Unmaps spare granules of the pool's heap, from the highest address down, apart from `kept`: `most`, or a
  // few more, since pieces go whole. Returns the number of granules unmapped.
  std::uint64_t unmap_spare(Pool& pool, std::uint64_t most, Interval kept = {}) {
    return unmap(pool.heap, pool, pool.heap.recyclable(pieces(), most, kept));
  }

 private:
  bool map_runs(const std::vector<Interval>& runs, std::vector<Interval>& left, std::exception_ptr& failure) {
    try {
      segments_.map(runs, left);
      return true;
    } catch (const OutOfMemory&) {
      return false;  // the device has less memory than the limit allows
    } catch (const Error&) {
      failure = std::current_exception();
      return false;
    }
  }
  void note_event(EventKind kind, Interval run, const Pool& pool) {
    history_.add({kind, reinterpret_cast<std::uintptr_t>(base() + run.begin * granule()),
                  run.length() * granule(), 0, pool.id});
  }

  Segments segments_;
  History& history_;
  Bytes limit_;
  std::uint64_t peak_mapped_ = 0;  // unit: granules
};

template <class Granules>
bool MappedMemory::map(Granules& granules, Pool& pool, const std::vector<Interval>& runs,
                       std::exception_ptr& failure) {
  std::vector<Interval> left;
  const bool all = map_runs(runs, left, failure);
  for (const Interval& run : all ? runs : left) {
    granules.note_mapped(run);
    pool.reserved += run.length();
    note_event(EventKind::map, run, pool);
  }
  pool.peak_reserved = std::max(pool.peak_reserved, pool.reserved);
  peak_mapped_ = std::max(peak_mapped_, mapped());
  return all;
}

template <class Granules>
std::uint64_t MappedMemory::unmap(Granules& granules, Pool& pool, const std::vector<Interval>& runs) {
  const std::uint64_t before = mapped();
  for (const Interval& run : runs) {
    granules.note_unmapped(run);
    note_event(EventKind::unmap, run, pool);
  }
  for (const Interval& refused : segments_.unmap(runs)) {
    granules.note_mapped(refused);
    note_event(EventKind::map, refused, pool);
  }
  const std::uint64_t unmapped = before - mapped();
  pool.reserved -= unmapped;
  return unmapped;
}

}  // namespace stowage::caching
