// Measures the link: pinned copies by size, each direction alone and both at once.
#pragma once

#include <cstddef>
#include <cstring>

#include "stowage/device.h"
#include "stowage/machine_file.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage {

// A direction of the link: a lane with its own memory on both sides.
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

  // Makes `count` copies, each of the next bytes of the memory. If the memory is large, no copy finds its
  // bytes in a cache, as in a training step.
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
  // Starts `count` copies that begin once `gate` has passed.
  void begin(EventId gate, Bytes bytes, int count) {
    device_.wait(lane_.id(), gate);
    begin(bytes, count);
  }
  void begin(Bytes bytes, int count) {
    stopwatch_.start();
    copy(bytes, count);
    stopwatch_.stop();
  }
  // Returns whether the copies have been made; does not wait.
  bool made() { return stopwatch_.passed(); }
  // Waits for the copies and returns their seconds.
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

struct LinkProbeOptions {
  Bytes smallest = 4_KiB;
  Bytes largest = 64_MiB;
  int repetitions = 9;
  double longest_seconds = 0.5;  // no longer copy is tried once one has taken this much
};

// Returns the seconds of one copy beside copies the other way. `count` copies in a row took `all` seconds.
// The copies of the other way ended after `others` seconds; from then on each copy took `alone` seconds.
double seconds_beside(int count, double all, double others, double alone);

// Fills the four curves of `file`. Takes `largest` bytes twice, pinned and on the device. Throws
// DeviceError, OutOfMemory.
void measure_link(Device& device, const LinkProbeOptions& options, MachineFile& file);

}  // namespace stowage
