// Our own CachingAllocator as a model: the allocator itself, on a simulated device.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "stowage/caching_allocator.h"
#include "stowage/simulated_device.h"
#include "tools/replay/replay.h"

namespace stowage {

// The device runs in virtual time and no work is ever enqueued, so releases have always passed. No code
// touches the memory: reserved bytes cost addresses, not memory of the host.
class CachingModel : public AllocatorModel {
 public:
  // `plans`: iterations that come again get fixed offsets (CachingAllocatorOptions::plan_periods).
  explicit CachingModel(Bytes limit = std::numeric_limits<Bytes>::max(), bool plans = false);

  std::uint64_t allocate(AllocationId id, Bytes bytes, std::uint32_t stream) override;
  void free(AllocationId id) override;
  Bytes reserved_bytes() const override;
  void release_cached() override { allocator_->trim(); }
  void begin_iteration() override { allocator_->begin_iteration(); }
  // Returns true from the first plan on; without plans, always.
  bool is_warm() const override;
  AllocatorStatistics statistics() const { return allocator_->statistics(); }

 private:
  std::unique_ptr<SimulatedDevice> device_;
  std::vector<Lane> lanes_;  // lane of each stream
  std::unique_ptr<CachingAllocator> allocator_;
  std::vector<void*> live_;  // address of each id
  mutable bool is_warm_;
};

}  // namespace stowage
