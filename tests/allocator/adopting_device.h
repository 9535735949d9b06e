// A device whose lanes can be adopted: any handle stands for a new compute lane.
#pragma once

#include <map>

#include "tests/allocator/device_decorator.h"

namespace stowage {

class AdoptingDevice : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  LaneId adopt_lane(void* native_stream) override {
    const LaneId lane = create_lane(LaneRole::compute);
    adopted[native_stream] = lane;
    return lane;
  }
  std::map<void*, LaneId> adopted;
};

}  // namespace stowage
