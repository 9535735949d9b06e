#include "src/replay/planned_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr Bytes device_page = 2_MiB;
constexpr std::uint64_t pool_address = std::uint64_t{1} << 63U;  // above all of the fallback's

}  // namespace

std::uint64_t PlannedModel::allocate(AllocationId id, Bytes bytes, std::uint32_t stream) {
  const PlannedPool::Block block = pool_.allocate(bytes, stream);
  trim_behind_plan();
  if (live_.size() <= id) live_.resize(std::max<std::size_t>(id + std::size_t{1}, 2 * live_.size()));
  live_[id] = {block.ticket, block.offset.has_value()};
  if (block.offset) return pool_address + *block.offset;
  try {
    return allocate_elsewhere(id, bytes, stream);
  } catch (...) {
    pool_.cancel(block.ticket);
    throw;
  }
}

std::uint64_t PlannedModel::allocate_elsewhere(AllocationId id, Bytes bytes, std::uint32_t stream) {
  const std::uint64_t address = fallback_->allocate(id, bytes, stream);
  if (make_room()) return address;
  fallback_->free(id);
  fallback_->release_cached();
  throw OutOfMemory(fmt::format("{} bytes are asked for, {} of {} are reserved; raise the limit", bytes,
                                reserved_bytes(), limit_),
                    bytes, limit_ - reserved_bytes());
}

bool PlannedModel::make_room() {
  if (reserved_bytes() > limit_) fallback_->release_cached();
  if (reserved_bytes() > limit_) pool_.drop_plans();
  return reserved_bytes() <= limit_;
}

void PlannedModel::free(AllocationId id) {
  if (!live_[id].is_planned) fallback_->free(id);
  pool_.free(live_[id].ticket);
}

void PlannedModel::begin_iteration() {
  const bool was_planned = pool_.is_planned();
  fallback_->begin_iteration();
  pool_.begin_iteration();
  if (pool_.is_planned() && !was_planned) plans_ = 0;  // what served meanwhile is not needed now
  trim_behind_plan();
}

void PlannedModel::trim_behind_plan() {
  if (plans_ == pool_.statistics().plans) return;
  plans_ = pool_.statistics().plans;
  fallback_->release_cached();
  make_room();
}

Bytes PlannedModel::reserved_bytes() const {
  return fallback_->reserved_bytes() + align_up(pool_.bytes(), device_page);
}

}  // namespace stowage
