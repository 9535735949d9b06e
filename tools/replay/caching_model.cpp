#include "tools/replay/caching_model.h"

#include <algorithm>

namespace stowage {
namespace {

constexpr Bytes largest_device = Bytes{1} << 40U;

std::unique_ptr<SimulatedDevice> open_device(Bytes limit) {
  SimulatedOptions options;
  options.capacity = std::min(limit, largest_device);
  options.executor = Executor::virtual_time;
  options.poison = Poison::none;
  options.check_accesses = false;
  return open_simulated_device(options);
}

}  // namespace

CachingModel::CachingModel(Bytes limit, bool plans)
    : device_(open_device(limit)),
      allocator_(
          std::make_unique<CachingAllocator>(*device_, CachingAllocatorOptions{.plan_periods = plans})),
      is_warm_(!plans) {}

bool CachingModel::is_warm() const {
  return is_warm_ = is_warm_ || allocator_->statistics().planned.plans > 0;
}

std::uint64_t CachingModel::allocate(AllocationId id, Bytes bytes, std::uint32_t stream) {
  while (lanes_.size() <= stream) lanes_.emplace_back(*device_, LaneRole::compute);
  void* address = allocator_->allocate_raw(bytes, lanes_[stream].id());
  if (live_.size() <= id) live_.resize(std::max<std::size_t>(id + std::size_t{1}, 2 * live_.size()));
  live_[id] = address;
  return reinterpret_cast<std::uintptr_t>(address);
}

void CachingModel::free(AllocationId id) { allocator_->release_raw(live_[id]); }

Bytes CachingModel::reserved_bytes() const {
  const MemoryInfo info = device_->memory_info();
  return info.total - info.free;
}

}  // namespace stowage
