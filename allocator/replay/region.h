// Region: the addresses that plans' offsets count from, and the memory behind them.
//
// A plan says where a block lies, so nothing is searched here. The owner takes a place in steps: it lets the
// stream wait for `waits`, calls `map_granules`, and `take` once both have worked; `give` when the block
// goes. Invariants between calls:
//   - every byte of a taken place is mapped, and no two taken places share a byte;
// - a mapped granule that no taken place touches is idle. An idle granule is lent to whoever needs memory,
// and is mapped
//     again where a place needs it.
// REQUIRES: the allocator's mutex, for every call but bytes() and at().
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "allocator/granule_runs.h"
#include "allocator/mapped_memory.h"
#include "allocator/pending.h"

namespace stowage::caching::replay {

class Region {
 public:
  // `space`: whole granules of `memory`'s range, which nobody else uses. Memory of these
  // granules counts to `pool`.
  Region(Interval space, MappedMemory& memory, Pool& pool)
      : space_(space), granule_(memory.granule()), memory_(memory), pool_(pool) {}

  Bytes bytes() const { return space_.length(); }
  Interval at(Bytes offset, Bytes bytes) const {
    return {space_.begin + offset, space_.begin + offset + bytes};
  }

  // Returns the tags of work on other lanes than `lane` that may still use the place.
  Tags waits(Interval place, const LaneClock& lane) const;
  // Returns the number of the place's granules that are not mapped.
  std::uint64_t missing(Interval place) const { return length_of(missing_runs(place)); }
  // Returns true if mapped granules have to move for the place to stay within `needed` bytes, and lanes may
  // still be using some that could move.
  bool awaits_granules(Interval place, Bytes needed) const;
  // Maps the place's missing granules. Memory is moved before more is taken: first idle granules beyond the
  // `needed` bytes of the plan (Plan::needed), then the pool's spare granules, then other idle ones, which
  // the plan will want back. Returns false if the limit leaves no memory, or a call of the device failed.
  bool map_granules(Interval place, Bytes needed);
  // REQUIRES: the place is mapped, and its stream waits for `waits`.
  void take(Interval place);
  // Ends a block: others may have its place's bytes once `tags` have passed.
  void give(Interval place, Tags tags);

  // Unmaps spare granules of the pool that a plan which was made before, and is used again, will not take.
  // `bytes` and `needed` are members of that plan.
  void make_way(Bytes bytes, Bytes needed);

  // Unmaps idle granules, `most` or a few more, since pieces go whole. Returns the
  // number of granules unmapped.
  std::uint64_t lend(std::uint64_t most) { return lend(most, {}); }
  // Returns how many granules `lend` could unmap.
  std::uint64_t lendable(std::uint64_t most) const { return length_of(recyclable(most, {})); }

  Bytes mapped_bytes() const { return mapped_.count() * granule_; }
  Bytes taken_bytes() const { return taken_; }
  const std::map<std::uint64_t, std::uint64_t>& mapped_runs() const {
    return mapped_.runs();
  }  // granules, end by begin
  // For MappedMemory.
  void note_mapped(Interval granules) { mapped_.add(granules); }
  void note_unmapped(Interval granules) { mapped_.remove(granules); }

 private:
  Interval granules_of(Interval bytes) const {
    return {bytes.begin / granule_, (bytes.end + granule_ - 1) / granule_};
  }
  std::uint32_t& touches(std::uint64_t granule);
  bool is_touched(Interval granules) const;
  std::vector<Interval> missing_runs(Interval place) const;
  std::vector<Interval> recyclable(std::uint64_t most, Interval kept, bool may_be_pending = false) const;
  std::uint64_t lend(std::uint64_t most, Interval kept);
  std::uint64_t beyond_need(std::uint64_t more, Bytes needed) const;

  const Interval space_;
  const Bytes granule_;
  MappedMemory& memory_;
  Pool& pool_;
  GranuleRuns mapped_;
  std::vector<std::uint32_t>
      touches_;  // taken places that touch each granule, from the first of the space on
  Pending pending_;
  Bytes taken_ = 0;
};

}  // namespace stowage::caching::replay
