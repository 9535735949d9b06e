// Work that meets work of other devices: a communicator's interface to a simulated device, beyond Device.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "stowage/simulated_device.h"

namespace stowage::simulated {

// A lane's arrival at a meeting.
struct Arrival {
  double time = 0;  // seconds on the lane's clock
  bool virtual_time = false;
  const char* failure = nullptr;  // why the lane has failed; null: it has not
};

// `function(context, arrival)` runs on the lane. It may block until other devices' work has come. It also
// runs on a lane that has failed, so that nobody waits for it in vain. In virtual time the function returns
// its end on the lane's clock; other executors measure the end. An exception fails the lane, as in a launch.
struct Meeting {
  std::string_view name;
  double (*function)(void* context, const Arrival& arrival) = nullptr;
  void* context = nullptr;            // must outlive the work
  std::span<const Access> accesses;   // as in a launch, but bytes that are read may be undefined
  std::span<const Access> undefined;  // parts of the written bytes that are undefined
};

class MeetingDevice : public SimulatedDevice {
 public:
  // Returns the parts of `bytes` that are undefined behind all work enqueued so far, by address. Throws
  // AccessViolation, in the name of the meeting, unless `bytes` lie in one live allocation.
  virtual std::vector<Access> undefined_parts(LaneId lane, std::string_view name, const Access& bytes) = 0;
  // Enqueues, checks, counts and fails as Device::launch. While the function blocks in virtual time, this and
  // other calls of the device block too.
  virtual void meet(LaneId lane, const Meeting& meeting) = 0;
};

}  // namespace stowage::simulated
