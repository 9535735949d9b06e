#include "offload/engine/host_memory.h"

#include <fmt/format.h>

#include "stowage/error.h"

namespace stowage {

HostMemory::HostMemory(Device& device, const Plan& plan, bool pageable_fallback, bool lent)
    : device_(device), pageable_fallback_(pageable_fallback), pool_(device) {
  std::byte* const ring = add_ring(plan);
  for (const Bucket& bucket : plan.buckets) {
    const std::string what = "bucket '" + bucket.name + "'";
    const std::size_t fallen_back = fallen_back_.size();
    std::byte* data = nullptr;
    if (lent && bucket.kind == TensorKind::parameter)
      data = nullptr;
    else if (bucket.in_ring())
      data = ring + *bucket.place_in(MemoryId::host)->ring_offset;
    else if (bucket.on_host())
      data = bucket.pinned() ? add_pinned(bucket.bytes, what) : add_pageable(bucket.bytes, what);
    const bool is_unpinned = bucket.in_ring() ? ring_is_unpinned_ : fallen_back_.size() > fallen_back;
    if (is_unpinned) unpinned_.push_back(static_cast<BucketId>(buckets_.size()));
    buckets_.push_back(data);
    if (bucket.pinned() && bucket.kind == TensorKind::input && bucket.bytes > spare_.size())
      spare_ = {data, bucket.bytes};
  }
  if (plan.undo_bytes > 0) undo_ = {add_pageable(plan.undo_bytes, "undo records"), plan.undo_bytes};
}

std::byte* HostMemory::add_pinned(Bytes bytes, const std::string& what) {
  try {
    // Memory is zero: it comes fresh from the device, since the pool got none back.
    pinned_.push_back(pool_.allocate(bytes));
    return pinned_.back().data();
  } catch (const OutOfMemory& error) {
    if (pageable_fallback_) {
      fallen_back_.emplace_back(device_, MemoryKind::pageable, bytes);
      return fallen_back_.back().data();
    }
    throw OutOfMemory(
        fmt::format("the host cannot page-lock {} for {}: {}. Or allow ordinary memory in its place "
                    "(--pageable auto), or plan for less of the host (--host-memory)",
                    format_bytes(bytes), what, error.what()),
        error.requested_bytes(), error.free_bytes());
  }
}

std::byte* HostMemory::add_ring(const Plan& plan) {
  if (plan.ring_bytes == 0) return nullptr;
  std::byte* const ring = add_pinned(plan.ring_bytes, "the gradient ring");
  ring_is_unpinned_ = !fallen_back_.empty();
  return ring;
}

std::byte* HostMemory::add_pageable(Bytes bytes, const std::string& what) {
  try {
    pageable_.emplace_back(device_, MemoryKind::pageable, bytes);
    return pageable_.back().data();
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(fmt::format("the host has no {} for {}: {}. Plan for a smaller host budget",
                                  format_bytes(bytes), what, error.what()),
                      error.requested_bytes(), error.free_bytes());
  }
}

}  // namespace stowage
