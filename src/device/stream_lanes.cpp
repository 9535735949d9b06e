#include "stowage/stream_lanes.h"

#include <exception>
#include <map>

#include "src/base/mutex.h"

namespace stowage {

class StreamLanes::Implementation {
 public:
  explicit Implementation(Device& device) : device_(device) {}
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  ~Implementation() {
    for (const auto& [stream, lane] : lanes_) {
      try {
        device_.destroy_lane(lane);
      } catch (const std::exception&) {
        continue;  // if the device keeps the lane, it ends with the device
      }
    }
  }

  LaneId lane(void* stream) {
    const MutexLock lock(mutex_);
    const auto known = lanes_.find(stream);
    if (known != lanes_.end()) return known->second;
    const LaneId made = device_.adopt_lane(stream);
    lanes_.emplace(stream, made);
    return made;
  }

  bool find(void* stream, LaneId& lane) {
    const MutexLock lock(mutex_);
    const auto known = lanes_.find(stream);
    if (known == lanes_.end()) return false;
    lane = known->second;
    return true;
  }

  void* stream(LaneId lane) {
    const MutexLock lock(mutex_);
    for (const auto& [stream, of] : lanes_)
      if (of == lane) return stream;
    return nullptr;
  }

  std::vector<LaneId> lanes() {
    const MutexLock lock(mutex_);
    std::vector<LaneId> all;
    for (const auto& [stream, lane] : lanes_) all.push_back(lane);
    return all;
  }

  void forget(void* stream) {
    const MutexLock lock(mutex_);
    const auto known = lanes_.find(stream);
    if (known == lanes_.end()) return;
    device_.destroy_lane(known->second);
    lanes_.erase(known);
  }

 private:
  Device& device_;
  Mutex mutex_;
  std::map<void*, LaneId> lanes_ STOWAGE_GUARDED_BY(mutex_);
};

StreamLanes::StreamLanes(Device& device) : implementation_(std::make_unique<Implementation>(device)) {}
StreamLanes::~StreamLanes() = default;
LaneId StreamLanes::lane(void* stream) { return implementation_->lane(stream); }
bool StreamLanes::find(void* stream, LaneId& lane) const { return implementation_->find(stream, lane); }
void* StreamLanes::stream(LaneId lane) const { return implementation_->stream(lane); }
std::vector<LaneId> StreamLanes::lanes() const { return implementation_->lanes(); }
void StreamLanes::forget(void* stream) { implementation_->forget(stream); }

}  // namespace stowage
