// Lifetimes of prefetches, begun as early as their bytes are free.
//
// A schedule begins such a lifetime when it expects the link to be free. Beginning it earlier moves no
// transfer: a prefetch waits for its bytes and for its turn on the link, never for a position.
#pragma once

#include <vector>

#include "offload/plan/buckets.h"
#include "offload/plan/lifetimes.h"

namespace stowage {

class EarlyClaims {
 public:
  // Keeps references.
  EarlyClaims(const Draft& draft, const BucketLayout& layout);

  // Each as early as possible with at most `cap` live bytes at every position. The draft itself keeps to
  // `cap`.
  Draft within(Bytes cap) const;
  // Each as early as the lifetimes that have its bytes before it have ended. Offsets by lifetime.
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
