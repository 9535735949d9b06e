// Lifetimes of prefetches that begin as early as bytes are free. A schedule says when it means to start them,
// which is when the link will be free; that moves no transfer, for a prefetch waits for its bytes and for no
// position.
#pragma once

#include <vector>

#include "offload/plan/buckets.h"
#include "offload/plan/lifetimes.h"

namespace stowage {

class EarlyClaims {
 public:
  // Keeps references.
  EarlyClaims(const Draft& draft, const BucketLayout& layout);

  // As early as no position has more live bytes than `cap`, which the draft keeps too.
  Draft within(Bytes cap) const;
  // As early as whatever has the bytes before has ended. Offsets by lifetime.
  Draft at(const std::vector<Bytes>& offsets) const;

 private:
  Bytes bytes_of(LifetimeId id) const { return layout_.buckets[draft_.lifetimes[id].bucket].bytes; }
  Position free_from(LifetimeId id, const std::vector<Bytes>& offsets) const;
  template <typename FreeFrom>
  Draft claimed(FreeFrom&& free_from) const;

  const Draft& draft_;
  const BucketLayout& layout_;
  std::vector<LifetimeId> turns_;    // those that are prefetched, in the link's order, which stays
  std::vector<Position> earliest_;   // by lifetime: behind the transfer that brought the host its value
  std::vector<LifetimeId> by_last_;  // by rising last
};

}  // namespace stowage
