// Copies results of ops from the device to the host, in parts, for the modes that look at every result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "offload/engine/binding.h"
#include "offload/engine/lanes.h"
#include "offload/engine/staging.h"
#include "stowage/device.h"

namespace stowage {

class ResultReader {
 public:
  // All arguments must outlive the reader. Allocates staging_memory of `largest` bytes, at most
  // 4 MiB. Throws OutOfMemory.
  ResultReader(Device& device, const Lanes& lanes, Bytes largest, bool pageable_fallback)
      : device_(device),
        lanes_(lanes),
        staging_(largest == 0 ? DeviceMemory()
                              : staging_memory(device, std::min(largest, most_bytes), pageable_fallback)) {}

  // Requires that nothing that writes the value is in flight. Calls `look` with consecutive parts, each but
  // the last a multiple of 64 bytes long, until `look` returns false. No copy is in flight on return. `name`:
  // of the copies, for the device's reports. Throws DeviceError: then a copy may be in flight, and the lanes
  // must settle before this is destroyed. Allocates nothing.
  template <class Look>
  void read(const Operand& value, const char* name, Look look) {
    const auto* data = static_cast<const std::byte*>(value.data);
    const Bytes bytes = value.tensor->bytes();
    const LaneId lane = lanes_[LaneRole::d2h];
    for (Bytes done = 0; done < bytes; done += staging_.bytes()) {
      const Bytes part = std::min(staging_.bytes(), bytes - done);
      device_.copy(lane, staging_.data(), data + done, part, name);
      device_.synchronise_lane(lane);
      copied_bytes_ += part;
      if (!look(std::span<const std::byte>(staging_.data(), part))) return;
    }
  }

  Bytes copied_bytes() const { return copied_bytes_; }  // bytes copied since the start or `forget`
  void forget() { copied_bytes_ = 0; }

 private:
  static constexpr Bytes most_bytes = 4_MiB;

  Device& device_;
  const Lanes& lanes_;
  DeviceMemory staging_;
  Bytes copied_bytes_ = 0;
};

}  // namespace stowage
