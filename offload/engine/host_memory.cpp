#include "offload/engine/host_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "stowage/error.h"

namespace stowage {

HostMemory::HostMemory(Device& device, const Plan& plan, bool pageable_fallback)
    : device_(device), pageable_fallback_(pageable_fallback), pool_(device) {
  for (const Bucket& bucket : plan.buckets) {
    std::byte* data = nullptr;
    if (bucket.on_host())
      data =
          bucket.pinned() ? add_pinned(bucket) : add_pageable(bucket.bytes, "bucket '" + bucket.name + "'");
    buckets_.push_back(data);
    if (bucket.pinned() && bucket.kind == TensorKind::input && bucket.bytes > spare_.size())
      spare_ = {data, bucket.bytes};
  }
  if (plan.undo_bytes > 0) undo_ = {add_pageable(plan.undo_bytes, "undo records"), plan.undo_bytes};
}

std::byte* HostMemory::add_pinned(const Bucket& bucket) {
  try {
    pinned_.push_back(
        pool_.allocate(bucket.bytes));  // from the device, since none has gone back: so it is zero
    return pinned_.back().data();
  } catch (const OutOfMemory& error) {
    if (pageable_fallback_) return add_unpinned(bucket);
    throw OutOfMemory(
        fmt::format("the host cannot page-lock {} for bucket '{}': {}. Or allow ordinary memory in its place "
                    "(--pageable auto), or plan for less of the host (--host-memory)",
                    format_bytes(bucket.bytes), bucket.name, error.what()),
        error.requested_bytes(), error.free_bytes());
  }
}

std::byte* HostMemory::add_unpinned(const Bucket& bucket) {
  fallen_back_.emplace_back(device_, MemoryKind::pageable, bucket.bytes);
  unpinned_.push_back(static_cast<BucketId>(buckets_.size()));
  return fallen_back_.back().data();
}

std::byte* HostMemory::add_pageable(Bytes bytes, const std::string& what) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw OutOfMemory(
        fmt::format("the host has no {} for {}: plan for a smaller host budget", format_bytes(bytes), what),
        bytes, 0);
  madvise(data, bytes, MADV_HUGEPAGE);  // only advice
  pageable_.emplace_back(static_cast<std::byte*>(data), Unmap{bytes});
  return pageable_.back().get();
}

void HostMemory::Unmap::operator()(std::byte* data) const { munmap(data, bytes); }

}  // namespace stowage
