// The host side of a plan: one buffer for every bucket that has a place on the host, of which some stand in
// the gradient ring, and undo records.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "allocator/pinned_pool.h"
#include "stowage/plan.h"

namespace stowage {

class HostMemory {
 public:
  // Page-locked where the plan says `pinned`, else pageable; all zero. All of it is memory of the device
  // (MemoryKind), which takes it from the host memory that it is next to: so a rank has its share's state
  // there. Pageable pages come when they are first touched. With `pageable_fallback`, buckets that cannot be
  // page-locked are pageable, too. The device must outlive it. Throws OutOfMemory.
  HostMemory(Device& device, const Plan& plan, bool pageable_fallback = false);

  // 64-byte aligned; null for a bucket without a place on the host.
  std::byte* bucket(BucketId id) const { return buckets_[id]; }
  std::span<std::byte* const> buckets() const { return buckets_; }
  std::span<std::byte> undo() const { return undo_; }               // Plan::undo_bytes
  std::span<const BucketId> unpinned() const { return unpinned_; }  // by falling back
  // The largest input bucket that transfers touch: the caller writes inputs anew for every step, so between
  // steps its contents serve nobody. Empty if there is none.
  std::span<std::byte> spare() const { return spare_; }

 private:
  std::byte* add_pinned(Bytes bytes, const std::string& what);
  std::byte* add_ring(const Plan& plan);
  std::byte* add_pageable(Bytes bytes, const std::string& what);

  Device& device_;
  const bool pageable_fallback_;
  PinnedPool pool_;
  std::vector<PinnedBuffer> pinned_;
  std::vector<DeviceMemory> fallen_back_;
  std::vector<BucketId> unpinned_;
  bool ring_is_unpinned_ = false;
  std::vector<DeviceMemory> pageable_;
  std::vector<std::byte*> buckets_;
  std::span<std::byte> undo_;
  std::span<std::byte> spare_;
};

}  // namespace stowage
