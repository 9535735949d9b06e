// PlanRegion: the addresses that a plan's offsets count from; what of them is mapped, held and pending.
//
// Where a block lies the plan says, so nothing is searched here. Granules that no block touches are lent to
// whoever needs memory, and mapped again where a block comes. Pure data, as PoolHeap: it calls no device. Not
// synchronised.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "allocator/gap_index.h"
#include "allocator/granule_runs.h"
#include "allocator/pending.h"
#include "allocator/pieces.h"

namespace stowage::caching {

class PlanRegion {
 public:
  // `space` in whole granules of `granule` bytes.
  PlanRegion(Interval space, Bytes granule) : space_(space), granule_(granule) {}

  Bytes bytes() const { return space_.length(); }
  Interval at(Bytes offset, Bytes bytes) const {
    return {space_.begin + offset, space_.begin + offset + bytes};
  }
  bool holds(Interval bytes) const { return bytes.begin >= space_.begin && bytes.begin < space_.end; }

  // Of the granules that `bytes` touch, those that are not mapped.
  std::vector<Interval> missing(Interval bytes) const;
  // What other lanes than `lane` may still be doing with them.
  Tags waits(Interval bytes, const LaneClock& lane) const;
  // A block comes: its granules are mapped, and no block has one of its bytes.
  void take(Interval bytes);
  // It goes; others may have its bytes once `tags` have passed.
  void give(Interval bytes, Tags tags);

  void note_mapped(Interval granules) { mapped_.add(granules); }
  void note_unmapped(Interval granules) { mapped_.remove(granules); }
  // Mapped granules that no block touches and no lane may be using, apart from those that `kept` touches,
  // from the highest address down: `most` or, as pieces go whole, a few more.
  std::vector<Interval> recyclable(const Pieces& pieces, std::uint64_t most, Interval kept) const;

  std::uint64_t mapped() const { return mapped_.count(); }  // granules
  const std::map<std::uint64_t, std::uint64_t>& mapped_runs() const {
    return mapped_.runs();
  }                                     // end by begin
  Bytes held() const { return held_; }  // by blocks

 private:
  Interval granules_of(Interval bytes) const {
    return {bytes.begin / granule_, (bytes.end + granule_ - 1) / granule_};
  }
  std::uint32_t& touches(std::uint64_t granule);
  bool is_touched(Interval granules) const;

  Interval space_;
  Bytes granule_;
  GranuleRuns mapped_;
  std::vector<std::uint32_t> touches_;  // by blocks, of each granule from the first of the space on
  Pending pending_;
  Bytes held_ = 0;
};

}  // namespace stowage::caching
