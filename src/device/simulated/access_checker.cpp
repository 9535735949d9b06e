#include "src/device/simulated/access_checker.h"

#include <fmt/core.h>

#include <algorithm>

#include "stowage/error.h"

namespace stowage::simulated {
namespace {

std::string_view to_string(WorkKind kind) {
  switch (kind) {
    case WorkKind::launch:
      return "launch";
    case WorkKind::copy:
      return "copy";
    case WorkKind::discard:
      return "discard";
  }
  return "unknown";
}

}  // namespace

LaneId AccessChecker::add_lane(LaneRole role) {
  const auto free =
      std::find_if(lanes_.begin(), lanes_.end(), [](const LaneState& lane) { return !lane.live; });
  const auto id = static_cast<LaneId>(free - lanes_.begin());
  if (free == lanes_.end()) lanes_.emplace_back();
  // A reused lane counts on where its predecessor stopped, so that ticks stay unique.
  lanes_[id].role = role;
  lanes_[id].live = true;
  return id;
}

void AccessChecker::remove_lane(LaneId lane) {
  host_.join(lanes_[lane].clock);
  lanes_[lane].live = false;
}

std::string AccessChecker::describe_lane(LaneId lane) const {
  return fmt::format("{} lane {}", stowage::to_string(lanes_[lane].role), lane);
}

RangeId AccessChecker::add_range(MemoryKind kind, Bytes bytes, std::uint64_t number) {
  if (free_ranges_.empty()) {
    free_ranges_.push_back(static_cast<RangeId>(ranges_.size()));
    ranges_.emplace_back(readers_);
  }
  const RangeId id = free_ranges_.back();
  free_ranges_.pop_back();
  ranges_[id].kind = kind;
  ranges_[id].bytes = bytes;
  ranges_[id].number = number;
  ranges_[id].history.reset(bytes, kind != MemoryKind::device);
  return id;
}

void AccessChecker::remove_range(RangeId range) { free_ranges_.push_back(range); }

void AccessChecker::forget(RangeId range, Bytes begin, Bytes end) {
  ranges_[range].history.forget(begin, end, ranges_[range].kind != MemoryKind::device);
}

void AccessChecker::expect_finished(RangeId range, Bytes begin, Bytes end, std::string_view call) const {
  const auto conflict = ranges_[range].history.find_unordered(begin, end, AccessMode::write, host_);
  if (!conflict) return;
  throw AccessViolation(
      fmt::format(
          "{} gives up {} while {}, which {} them, may still run: synchronise with its lane or with an "
          "event recorded behind it first",
          call, describe_bytes(range, conflict->begin, conflict->end), describe_work(conflict->other),
          conflict->other_wrote ? "writes" : "reads"),
      std::string(call));
}

void AccessChecker::launch(LaneId lane, const std::string& name, std::span<const RangeAccess> accesses) {
  join_host(lane);
  for (const RangeAccess& access : accesses) {
    expect_reachable(lane, name, access);
    expect_ordered(lane, name, WorkKind::launch, access);
    if (access.mode == AccessMode::read) expect_defined(lane, name, access);
  }
  remember(lane, name, accesses);
}

void AccessChecker::meet(LaneId lane, const std::string& name, std::span<const RangeAccess> accesses,
                         std::span<const RangeAccess> undefined) {
  join_host(lane);
  for (const RangeAccess& access : accesses) {
    expect_reachable(lane, name, access);
    expect_ordered(lane, name, WorkKind::launch, access);
  }
  const Stamp stamp = remember(lane, name, accesses);
  for (const RangeAccess& part : undefined)
    ranges_[part.range].history.write(part.begin, part.end, stamp, false);
}

Stamp AccessChecker::remember(LaneId lane, const std::string& name, std::span<const RangeAccess> accesses) {
  const Stamp stamp = next_stamp(lane, name, WorkKind::launch);
  for (const RangeAccess& access : accesses)
    if (access.mode == AccessMode::read)
      ranges_[access.range].history.read(access.begin, access.end, stamp, lanes_[lane].clock);
  for (const RangeAccess& access : accesses)
    if (access.mode == AccessMode::write)
      ranges_[access.range].history.write(access.begin, access.end, stamp, true);
  return stamp;
}

void AccessChecker::copy(LaneId lane, const std::string& name, const RangeAccess& to,
                         const RangeAccess& from) {
  join_host(lane);
  expect_ordered(lane, name, WorkKind::copy, from);
  expect_ordered(lane, name, WorkKind::copy, to);
  const Stamp stamp = next_stamp(lane, name, WorkKind::copy);
  AccessHistory& source = ranges_[from.range].history;
  AccessHistory& target = ranges_[to.range].history;
  source.read(from.begin, from.end, stamp, lanes_[lane].clock);
  source.for_each_piece(from.begin, from.end, [&](Bytes begin, Bytes end, bool defined) {
    target.write(to.begin + (begin - from.begin), to.begin + (end - from.begin), stamp, defined);
  });
}

void AccessChecker::discard(LaneId lane, const std::string& name, const RangeAccess& range) {
  join_host(lane);
  expect_ordered(lane, name, WorkKind::discard, range);
  const Stamp stamp = next_stamp(lane, name, WorkKind::discard);
  ranges_[range.range].history.write(range.begin, range.end, stamp, false);
}

void AccessChecker::record(LaneId lane, VectorClock& event) {
  join_host(lane);
  event = lanes_[lane].clock;
}

void AccessChecker::wait(LaneId lane, const VectorClock& event) {
  join_host(lane);
  lanes_[lane].clock.join(event);
}

void AccessChecker::join_host(LaneId lane) {
  if (host_orders_) lanes_[lane].clock.join(host_);
}

Stamp AccessChecker::next_stamp(LaneId lane, const std::string& name, WorkKind kind) {
  return {&name, lanes_[lane].clock.advance(lane), lane, kind};
}

void AccessChecker::expect_reachable(LaneId lane, const std::string& name, const RangeAccess& access) const {
  if (lanes_[lane].role != LaneRole::host || ranges_[access.range].kind != MemoryKind::device) return;
  throw AccessViolation(
      fmt::format("launch '{}' on {} touches {}: the host cannot; copy them to pinned memory", name,
                  describe_lane(lane), describe_bytes(access.range, access.begin, access.end)),
      "launch");
}

void AccessChecker::expect_ordered(LaneId lane, const std::string& name, WorkKind kind,
                                   const RangeAccess& access) const {
  const auto conflict =
      ranges_[access.range].history.find_unordered(access.begin, access.end, access.mode, lanes_[lane].clock);
  if (!conflict) return;
  throw AccessViolation(
      fmt::format(
          "{} '{}' on {} {} {}, and nothing orders it after {}, which {} them: let lane {} wait for an event "
          "recorded on lane {} behind '{}'",
          to_string(kind), name, describe_lane(lane), access.mode == AccessMode::read ? "reads" : "writes",
          describe_bytes(access.range, conflict->begin, conflict->end), describe_work(conflict->other),
          conflict->other_wrote ? "writes" : "reads", lane, conflict->other.lane, *conflict->other.name),
      std::string(to_string(kind)));
}

void AccessChecker::expect_defined(LaneId lane, const std::string& name, const RangeAccess& access) const {
  if (ranges_[access.range].kind != MemoryKind::device) return;
  const auto undefined = ranges_[access.range].history.find_undefined(access.begin, access.end);
  if (!undefined) return;
  const std::string since =
      undefined->since.tick == 0 ? std::string("they were allocated") : describe_work(undefined->since);
  throw AccessViolation(fmt::format("launch '{}' on {} reads {}, whose value is undefined since {}: write "
                                    "them first, or do not declare "
                                    "the read",
                                    name, describe_lane(lane),
                                    describe_bytes(access.range, undefined->begin, undefined->end), since),
                        "launch");
}

std::string AccessChecker::describe_work(const Stamp& stamp) const {
  return fmt::format("{} '{}' on {}", to_string(stamp.kind), *stamp.name, describe_lane(stamp.lane));
}

std::string AccessChecker::describe_bytes(RangeId range, Bytes begin, Bytes end) const {
  const Range& r = ranges_[range];
  return fmt::format("bytes [{}, {}) of {} allocation {} ({} bytes)", begin, end, stowage::to_string(r.kind),
                     r.number, r.bytes);
}

}  // namespace stowage::simulated
