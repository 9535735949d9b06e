// Pending: which free bytes some lane may still be using, as tags on address ranges.
//
// A lane's releases are counted; a tag (lane's clock, count) says that the bytes may be in use until the lane
// has done all work submitted before release number `count`. A byte has at most one piece. Pure data, not
// synchronised, but for LaneClock::passed, which any thread may read.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "allocator/gap_index.h"
#include "stowage/device.h"

namespace stowage::caching {

struct LaneClock {
  LaneId lane = 0;
  // Work before this release, and all earlier ones, is known to have ended.
  std::atomic<std::uint64_t> passed{0};
};

struct Tag {
  LaneClock* clock = nullptr;
  std::uint64_t count = 0;
  bool passed() const { return clock->passed.load(std::memory_order_acquire) >= count; }
  friend bool operator==(const Tag&, const Tag&) = default;
};
using Tags = std::vector<Tag>;

// Adds `tag` unless the list has a later one of its lane.
void join(Tags& tags, const Tag& tag);

class Pending {
 public:
  // REQUIRES: no piece overlaps `range`. Tags that have passed are dropped.
  void add(Interval range, Tags tags);
  void cut(Interval range);
  // Returns the tags of `range` that have not passed.
  Tags in(Interval range) const;
  bool any_in(Interval range) const;
  // Returns the end of the last piece in `range` that other lanes than `lane` may be using; 0
  // if there is none.
  Bytes last_foreign_end(Interval range, const LaneClock& lane) const;
  // Returns all tags that have not passed, and drops pieces that have.
  Tags all();
  std::size_t pieces() const { return pieces_.size(); }

 private:
  struct Piece {
    Bytes end = 0;
    Tags tags;
    bool passed() const;
  };
  using Map = std::map<Bytes, Piece>;
  Map::const_iterator first_behind(Bytes position) const;
  bool merge_left(Interval range, const Tags& tags);

  Map pieces_;  // pieces by their begin
};

}  // namespace stowage::caching
