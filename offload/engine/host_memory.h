// The host side of a plan: a buffer for every bucket that has a place on the host (some buffers are in the
// gradient ring), and the undo records.
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
  // Allocates zeroed memory, page-locked where the plan says `pinned`, else pageable. The device provides all
  // of it (MemoryKind) from the host memory that is next to it, so a rank's state is near its device.
  // Pageable pages are allocated on first touch. With `pageable_fallback`, buckets that cannot be page-locked
  // are pageable, too. Parameters have no memory if they are `lent` by another engine. The device must
  // outlive it. Throws OutOfMemory.
  HostMemory(Device& device, const Plan& plan, bool pageable_fallback = false, bool lent = false);

  // Returns a 64-byte aligned address, or null for a bucket without a place on the host.
  std::byte* bucket(BucketId id) const { return buckets_[id]; }
  std::span<std::byte* const> buckets() const { return buckets_; }
  std::span<std::byte> undo() const { return undo_; }  // Plan::undo_bytes
  // Buckets that are pageable because of `pageable_fallback`.
  std::span<const BucketId> unpinned() const { return unpinned_; }
  // Returns the largest input bucket that transfers touch, empty if there is none. Nobody needs its contents
  // between steps, because the caller writes inputs anew for every step.
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
