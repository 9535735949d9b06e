// AccessChecker: checks for every byte that accesses are ordered by happens-before over lanes, events and the
// calling thread. Pure logic: no threads and no memory, one caller at a time.
//
// The order in which work is enqueued is a valid order of the device (a wait captures the event's most recent
// record), so judging each operation as it is enqueued judges every interleaving. Every lane has a vector
// clock, and so has the host (all calling threads count as one). An operation advances its lane's clock;
// `record` copies it into the event's clock, `wait` joins that into a lane's, `synchronise` into the host's;
// with `host_orders` every enqueue first joins the host's clock into its lane's. A write must be ordered
// after every earlier access of its bytes, a read after every earlier write.
//
// Throws AccessViolation naming both operations, the bytes and the missing order; the operation then leaves
// no trace.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/device/simulated/access_history.h"
#include "stowage/device.h"

namespace stowage::simulated {

using RangeId = std::uint32_t;

// Bytes [begin, end) of an allocation; not empty, in its bounds.
struct RangeAccess {
  RangeId range = 0;
  Bytes begin = 0;
  Bytes end = 0;
  AccessMode mode = AccessMode::read;
};

class AccessChecker {
 public:
  explicit AccessChecker(bool host_orders) : host_orders_(host_orders) {}
  AccessChecker(const AccessChecker&) = delete;
  AccessChecker& operator=(const AccessChecker&) = delete;

  // Ids of removed lanes and ranges are used again. Removing a lane counts as synchronising it.
  LaneId add_lane(LaneRole role);
  void remove_lane(LaneId lane);
  bool has_lane(LaneId lane) const { return lane < lanes_.size() && lanes_[lane].live; }
  LaneRole role(LaneId lane) const { return lanes_[lane].role; }
  std::string describe_lane(LaneId lane) const;  // "compute lane 0"

  // Device bytes start undefined, host bytes defined. `number` is for messages.
  RangeId add_range(MemoryKind kind, Bytes bytes, std::uint64_t number);
  void remove_range(RangeId range);
  MemoryKind kind(RangeId range) const { return ranges_[range].kind; }
  // Forgets the history of bytes that were mapped just now.
  void forget(RangeId range, Bytes begin, Bytes end);
  // Throws unless the host has synchronised with every access of these bytes, which `call` gives up.
  void expect_finished(RangeId range, Bytes begin, Bytes end, std::string_view call) const;

  void launch(LaneId lane, const std::string& name, std::span<const RangeAccess> accesses);
  // A launch that may read undefined bytes; its writes leave the parts `undefined` undefined.
  void meet(LaneId lane, const std::string& name, std::span<const RangeAccess> accesses,
            std::span<const RangeAccess> undefined);
  void copy(LaneId lane, const std::string& name, const RangeAccess& to, const RangeAccess& from);
  void discard(LaneId lane, const std::string& name, const RangeAccess& range);

  // Calls function(begin, end) for each undefined part of the range, in order.
  template <class Function>
  void for_each_undefined(const RangeAccess& range, Function&& function) const {
    ranges_[range.range].history.for_each_piece(range.begin, range.end,
                                                [&](Bytes begin, Bytes end, bool defined) {
                                                  if (!defined) function(begin, end);
                                                });
  }

  void record(LaneId lane, VectorClock& event);
  void wait(LaneId lane, const VectorClock& event);
  void synchronise(const VectorClock& event) { host_.join(event); }

  // "bytes [0, 64) of device allocation 3 (1.00 KiB)"
  std::string describe_bytes(RangeId range, Bytes begin, Bytes end) const;

 private:
  struct LaneState {
    LaneRole role = LaneRole::compute;
    bool live = false;
    VectorClock clock;
  };
  struct Range {
    explicit Range(ReaderPool& readers) : history(readers) {}
    MemoryKind kind = MemoryKind::device;
    Bytes bytes = 0;
    std::uint64_t number = 0;
    AccessHistory history;
  };

  void join_host(LaneId lane);
  Stamp remember(LaneId lane, const std::string& name, std::span<const RangeAccess> accesses);
  Stamp next_stamp(LaneId lane, const std::string& name, WorkKind kind);
  void expect_reachable(LaneId lane, const std::string& name, const RangeAccess& access) const;
  void expect_ordered(LaneId lane, const std::string& name, WorkKind kind, const RangeAccess& access) const;
  void expect_defined(LaneId lane, const std::string& name, const RangeAccess& access) const;
  std::string describe_work(const Stamp& stamp) const;

  bool host_orders_;
  ReaderPool readers_;
  std::vector<LaneState> lanes_;
  std::vector<Range> ranges_;
  std::vector<RangeId> free_ranges_;
  VectorClock host_;
};

}  // namespace stowage::simulated
