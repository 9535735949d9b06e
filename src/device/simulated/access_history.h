// AccessHistory: keeps for every byte of one allocation its last writer, its readers since, and whether its
// value is defined. Pure data: no threads, no memory behind it.
//
// Sorted segments tile [0, bytes); their readers are lists from a shared pool. Both keep their capacity, so
// that a periodic program soon allocates nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/device.h"

namespace stowage::simulated {

// Counts, for each lane, the operations that are known to have happened.
class VectorClock {
 public:
  // True when the lane's operation number `tick` (from 1) has happened.
  bool covers(LaneId lane, std::uint64_t tick) const { return lane < ticks_.size() && ticks_[lane] >= tick; }

  // Counts one more operation of `lane` and returns its number.
  std::uint64_t advance(LaneId lane) {
    if (ticks_.size() <= lane) ticks_.resize(lane + 1, 0);
    return ++ticks_[lane];
  }

  void reserve(std::size_t lanes) { ticks_.reserve(lanes); }

  void join(const VectorClock& other) {
    if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size(), 0);
    for (std::size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }

 private:
  std::vector<std::uint64_t> ticks_;  // ticks by lane; missing lanes have 0
};

enum class WorkKind : std::uint8_t { launch, copy, discard };

// An operation as the history remembers it. `tick` 0: none.
struct Stamp {
  const std::string* name = nullptr;  // an interned name, which outlives the history
  std::uint64_t tick = 0;
  LaneId lane = 0;
  WorkKind kind = WorkKind::launch;
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

// A remembered access that nothing orders before the one being judged, and the bytes they share.
struct Conflict {
  Stamp other;
  bool other_wrote = false;
  Bytes begin = 0;
  Bytes end = 0;
};

struct UndefinedBytes {
  Bytes begin = 0;
  Bytes end = 0;
  Stamp since;  // the discard, or the copy of undefined bytes; tick 0: the allocation
};

// Pool of the reader lists of all histories of a device: nodes by index, recycled.
class ReaderPool {
 public:
  static constexpr std::uint32_t none = ~0u;
  ReaderPool() { nodes_.reserve(4096); }

  const Stamp& stamp(std::uint32_t node) const { return nodes_[node].stamp; }
  std::uint32_t next(std::uint32_t node) const { return nodes_[node].next; }
  std::uint32_t push(const Stamp& stamp, std::uint32_t list);  // returns the longer list
  std::uint32_t copy(std::uint32_t list);
  void release(std::uint32_t list);
  // Removes the stamps that `clock` covers and returns the rest of the list.
  std::uint32_t without_covered(std::uint32_t list, const VectorClock& clock);
  std::size_t nodes() const { return nodes_.size(); }  // number of nodes, in use and free

 private:
  struct Node {
    Stamp stamp;
    std::uint32_t next = none;
  };
  std::vector<Node> nodes_;
  std::uint32_t free_ = none;
};

class AccessHistory {
 public:
  explicit AccessHistory(ReaderPool& readers) : readers_(&readers) {}  // `readers` must outlive this object

  // Forgets everything; the whole range is `defined` or not.
  void reset(Bytes bytes, bool defined);
  // Forgets what happened to part of the range.
  void forget(Bytes begin, Bytes end, bool defined) { write(begin, end, Stamp{}, defined); }

  // Requires half-open ranges, not empty and inside [0, bytes), here and below. A write must come after every
  // reader and the writer of each byte; a read after the writer.
  std::optional<Conflict> find_unordered(Bytes begin, Bytes end, AccessMode mode,
                                         const VectorClock& clock) const;
  std::optional<UndefinedBytes> find_undefined(Bytes begin, Bytes end) const;

  // `clock` is the reader's: readers that it covers are implied by it from now on.
  void read(Bytes begin, Bytes end, const Stamp& stamp, const VectorClock& clock);
  void write(Bytes begin, Bytes end, const Stamp& stamp, bool defined);

  // Calls function(begin, end, defined) piece by piece, in order.
  template <class Function>
  void for_each_piece(Bytes begin, Bytes end, Function&& function) const {
    for (std::size_t i = index_at(begin); i < segments_.size() && segments_[i].begin < end; ++i)
      function(std::max(begin, segments_[i].begin), std::min(end, segments_[i].end), segments_[i].defined);
  }

  std::size_t segments() const { return segments_.size(); }

 private:
  struct Segment {
    Bytes begin = 0;
    Bytes end = 0;
    Stamp writer;
    std::uint32_t readers = ReaderPool::none;
    bool defined = false;
  };

  std::size_t index_at(Bytes position) const;  // returns the segment that holds the byte
  std::size_t split_at(Bytes position);        // returns the segment that begins there; cuts one if needed
  void merge_with_left(std::size_t index);

  ReaderPool* readers_;
  std::vector<Segment> segments_;
};

// Keeps one copy of every name, at an address that stays; the operations of a periodic program have few
// names. A known name costs no allocation.
class Names {
 public:
  const std::string& intern(std::string_view name) {
    const auto found = names_.find(name);
    return found != names_.end() ? *found : *names_.emplace(name).first;
  }

 private:
  std::set<std::string, std::less<>> names_;
};

}  // namespace stowage::simulated
