#include "offload/engine/host_memory.h"

#include <fmt/format.h>

#include <cstring>

#include "stowage/error.h"

namespace stowage {

HostMemory::HostMemory(Device& device, const Plan& plan) : pool_(device) {
  for (const Bucket& bucket : plan.buckets) {
    std::byte* data = nullptr;
    if (bucket.on_host) data = bucket.pinned ? add_pinned(bucket.bytes) : add_pageable(bucket);
    buckets_.push_back(data);
    if (bucket.pinned && bucket.kind == TensorKind::input && bucket.bytes > spare_.size())
      spare_ = {data, bucket.bytes};
  }
}

std::byte* HostMemory::add_pinned(Bytes bytes) {
  pinned_.push_back(pool_.allocate(bytes));
  std::memset(pinned_.back().data(), 0, bytes);
  return pinned_.back().data();
}

std::byte* HostMemory::add_pageable(const Bucket& bucket) {
  void* data = ::operator new (bucket.bytes, std::align_val_t{64}, std::nothrow);
  if (data == nullptr)
    throw OutOfMemory(fmt::format("the host has no {} for bucket '{}': plan for a smaller host budget",
                                  format_bytes(bucket.bytes), bucket.name),
                      bucket.bytes, 0);
  pageable_.emplace_back(static_cast<std::byte*>(data));
  std::memset(data, 0, bucket.bytes);
  return pageable_.back().get();
}

}  // namespace stowage
