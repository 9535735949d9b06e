// A Device that passes every call on to another one, for tests that stand between the two: calls may fail,
// events may seem not to have passed yet, and waits may be lost.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "stowage/device.h"
#include "stowage/error.h"

namespace stowage {

class DeviceDecorator : public Device {
 public:
  explicit DeviceDecorator(Device& device) : device_(device) {}

  // Each is asked at every such call; none by default.
  std::function<bool(const std::string& call)> fails;  // every call that can fail, unmap included
  std::function<bool()> is_slow;                       // query: the event has not passed yet
  std::function<bool()> loses_wait;
  std::function<bool(LaneId)> captures;

  void* reserved = nullptr;  // the latest range
  std::uint64_t waits = 0, queries = 0, unmaps = 0, violations = 0;

  DeviceInfo info() const override { return device_.info(); }
  MemoryInfo memory_info() const override { return device_.memory_info(); }
  void* allocate(MemoryKind kind, Bytes bytes) override { return device_.allocate(kind, bytes); }
  void release(MemoryKind kind, void* address) override { device_.release(kind, address); }
  Bytes granularity() const override { return device_.granularity(); }
  void* reserve(Bytes bytes) override {
    begin("reserve");
    return reserved = device_.reserve(bytes);
  }
  void unreserve(void* address) override { device_.unreserve(address); }
  void map_pieces(void* range, Bytes offset, Bytes bytes, Bytes piece) override {
    if (fails && fails("map")) throw OutOfMemory("map: made to fail", bytes, 0);
    device_.map_pieces(range, offset, bytes, piece);
  }
  void unmap(void* range, Bytes offset, Bytes bytes) override {
    begin("unmap");
    ++unmaps;
    try {
      device_.unmap(range, offset, bytes);
    } catch (const AccessViolation&) {  // memory that is in use was to be unmapped
      ++violations;
      throw;
    }
  }
  bool is_captured(LaneId lane) const override { return captures && captures(lane); }
  LaneId create_lane(LaneRole role) override { return device_.create_lane(role); }
  void destroy_lane(LaneId lane) override { device_.destroy_lane(lane); }
  EventId create_event() override {
    begin("create_event");
    return device_.create_event();
  }
  EventId create_untimed_event() override {
    begin("create_event");
    return device_.create_untimed_event();
  }
  void destroy_event(EventId event) override { device_.destroy_event(event); }
  void record(EventId event, LaneId lane) override {
    begin("record");
    device_.record(event, lane);
  }
  void wait(LaneId lane, EventId event) override {
    begin("wait");
    ++waits;
    if (loses_wait && loses_wait()) return;
    device_.wait(lane, event);
  }
  bool query(EventId event) override {
    begin("query");
    ++queries;
    if (is_slow && is_slow()) return false;
    return device_.query(event);
  }
  void synchronise(EventId event) override {
    begin("synchronise");
    device_.synchronise(event);
  }
  void synchronise_lane(LaneId lane) override { device_.synchronise_lane(lane); }
  double elapsed_seconds(EventId from, EventId to) override { return device_.elapsed_seconds(from, to); }
  void copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view name) override {
    device_.copy(lane, to, from, bytes, name);
  }
  void launch(LaneId lane, const Launch& launch) override { device_.launch(lane, launch); }
  void discard(LaneId lane, void* address, Bytes bytes) override { device_.discard(lane, address, bytes); }
  DeviceCounters counters() const override { return device_.counters(); }
  void reset_counters() override { device_.reset_counters(); }

 private:
  void begin(const std::string& call) const {
    if (fails && fails(call)) throw DeviceError(call + ": made to fail", call);
  }
  Device& device_;
};

// Work on a lane that writes all of a block.
inline void write_block(Device& device, LaneId lane, void* address, Bytes bytes) {
  const Access access{address, bytes, AccessMode::write};
  Launch launch;
  launch.name = "write";
  launch.function = [](void*) {};
  launch.accesses = {&access, 1};
  device.launch(lane, launch);
}

}  // namespace stowage
