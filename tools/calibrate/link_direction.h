// One direction of the link: a lane with its own memory on both sides.
#pragma once

#include <cstddef>
#include <cstring>

#include "tools/calibrate/drain.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage {

class LinkDirection {
 public:
  LinkDirection(Device& device, LaneRole role, Bytes bytes)
      : device_(device),
        bytes_(bytes),
        inward_(role == LaneRole::h2d),
        lane_(device, role),
        here_(device, MemoryKind::pinned, bytes),
        there_(device, MemoryKind::device, bytes),
        drain_(device, lane_.id()),
        stopwatch_(device, lane_.id()) {
    std::memset(here_.data(), 0x3c, bytes);
    if (!inward_) fill(device, bytes);
  }

  // Each copy takes the next bytes of the memory: of much memory, none is in a cache, as in a training step.
  void copy(Bytes bytes, int count) {
    for (int i = 0; i < count; ++i) {
      if (at_ + bytes > bytes_) at_ = 0;
      std::byte* const here = static_cast<std::byte*>(here_.data()) + at_;
      std::byte* const there = static_cast<std::byte*>(there_.data()) + at_;
      device_.copy(lane_.id(), inward_ ? there : here, inward_ ? here : there, bytes, "link probe");
      at_ += bytes;
    }
  }
  double alone(Bytes bytes, int repetitions) {
    return stopwatch_.median_seconds(repetitions, [&] { copy(bytes, 1); });
  }
  // Starts `count` copies once `gate` has passed.
  void begin(EventId gate, Bytes bytes, int count) {
    device_.wait(lane_.id(), gate);
    begin(bytes, count);
  }
  void begin(Bytes bytes, int count) {
    stopwatch_.start();
    copy(bytes, count);
    stopwatch_.stop();
  }
  // Whether those have been made; it does not wait.
  bool made() { return stopwatch_.passed(); }
  // What they took. Waits for them.
  double read() { return stopwatch_.read(); }

 private:
  void fill(Device& device, Bytes bytes) {
    const Lane lane(device, LaneRole::h2d);
    const Drain drain(device, lane.id());
    device.copy(lane.id(), there_.data(), here_.data(), bytes, "link probe fill");
    device.synchronise_lane(lane.id());
  }

  Device& device_;
  Bytes bytes_;
  Bytes at_ = 0;
  bool inward_;
  Lane lane_;
  DeviceMemory here_;
  DeviceMemory there_;
  Drain drain_;
  Stopwatch stopwatch_;
};

}  // namespace stowage
