// PoolHeap: the free address space of one pool, what of it is mapped, and who may still be using it.
//
// Tiny, small and large blocks have a zone each. Small and large blocks take mapped granules of each other's
// zone before new memory is mapped. Tiny blocks enter another zone only as a last resort: one tiny block
// saves little memory, but keeps a whole granule from being moved. Mapped granules that no block touches are
// *spare*: the next block there takes them as they are, and spare granules can be unmapped so that as many
// can be mapped where they are wanted. Pure data: it calls no device; whoever maps and unmaps
// tells it. Not synchronised.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "allocator/gap_index.h"
#include "allocator/granule_runs.h"
#include "allocator/pending.h"

namespace stowage::caching {

// Ranks places for a block, best first: usable at once, usable once other lanes have been waited for, or
// usable once memory is mapped there.
enum class Need : std::uint8_t { nothing, waits, memory };

struct Place {
  Interval bytes;
  Interval granules;           // clean granules that the place takes
  std::uint64_t unmapped = 0;  // number of `granules` that are not mapped yet
  Tags waits;                  // releases of other lanes that must have passed first
  Need need = Need::nothing;
};

class PoolHeap {
 public:
  static constexpr Bytes largest_tiny = 128, largest_small = 2;  // block sizes, as fractions 1/n of a granule
  // Number of places of each kind that `find` tries.
  static constexpr std::size_t quick = 16, all = ~std::size_t{0};

  // `space` in whole granules of `granule` bytes.
  PoolHeap(Interval space, Bytes granule);

  // Returns the best place that needs no more than `most`; of places that need memory, the one that takes the
  // fewest clean granules (of all places if `breadth` is `all`). `lane` may use bytes that are pending on
  // itself, and on others if it `may_wait`.
  std::optional<Place> find(Bytes bytes, const LaneClock& lane, Need most, std::size_t breadth,
                            bool may_wait = true) const;
  // A block takes the place, all of whose granules are mapped.
  void take(const Place& place);
  // A block's bytes are free again, once `tags` have passed.
  void give(Interval bytes, Tags tags);

  void note_mapped(Interval granules) { spare_.add(granules); }
  void note_unmapped(Interval granules) { spare_.remove(granules); }
  // Returns spare granules that no lane may still be using, apart from `kept`, from the highest address down:
  // `most` or, as pieces go whole, a few more.
  std::vector<Interval> recyclable(const Pieces& pieces, std::uint64_t most, Interval kept) const;

  const GranuleRuns& spare() const { return spare_; }
  Pending& pending() { return pending_; }
  Interval space() const { return space_; }
  Bytes largest_mapped_gap() const;
  // Returns the mapped bytes of the heap, by address, cut between the zones. All blocks lie in these ranges.
  std::vector<Interval> mapped() const;
  bool is_small(Interval bytes) const { return zone_at(bytes.begin) != large; }
  // Returns the end of the gap that holds `position`; `position` itself if it is in none.
  Bytes gap_end(Bytes position) const;

 private:
  enum : std::size_t { tiny, small, large, zones };
  std::size_t zone_for(Bytes bytes) const {
    return bytes <= granule_ / largest_tiny ? tiny : bytes <= granule_ / largest_small ? small : large;
  }
  std::size_t zone_at(Bytes position) const {
    return position < borders_[small] ? tiny : position < borders_[large] ? small : large;
  }
  // Searches the gaps for a place without bytes that are pending on other lanes.
  std::optional<Place> find_beside(Bytes bytes, const LaneClock& lane, Need most) const;
  Place describe(const GapIndex& zone, Interval bytes, const LaneClock& lane) const;

  Interval space_;
  Bytes granule_;
  std::array<Bytes, zones + 1> borders_;  // the begin of each zone, and the end of the last one
  std::array<GapIndex, zones> zones_;
  GranuleRuns spare_;
  Pending pending_;
};

}  // namespace stowage::caching
