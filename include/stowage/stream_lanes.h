// StreamLanes: the lanes of a device that stand for streams which a program made itself, by the streams'
// native handles (cudaStream_t as void*; null: the legacy default stream).
//
// Thread-safe. The device outlives it. It makes a lane when it first meets a stream, and destroys its lanes
// with itself, leaving the streams alone; the streams live as long, or until `forget`.
#pragma once

#include <memory>
#include <vector>

#include "stowage/device.h"

namespace stowage {

class StreamLanes {
 public:
  explicit StreamLanes(Device& device);
  StreamLanes(const StreamLanes&) = delete;
  StreamLanes& operator=(const StreamLanes&) = delete;
  ~StreamLanes();

  // Throws what Device::adopt_lane does.
  LaneId lane(void* stream);
  // Returns whether the stream has a lane here, and sets `lane` to it.
  bool find(void* stream, LaneId& lane) const;
  // Returns the lane's stream; null also for a lane that this object did not make.
  void* stream(LaneId lane) const;
  std::vector<LaneId> lanes() const;
  // Call before the stream is destroyed, since a new stream may get its handle. Waits for the stream's work.
  // REQUIRES: no allocator uses the lane any more (CachingAllocator::retire_stream was called). Does nothing
  // for an unknown stream.
  void forget(void* stream);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace stowage
