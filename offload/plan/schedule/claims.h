// Lifetimes of what is prefetched, or gathered from other ranks, begun as early as their bytes are free.
//
// A schedule begins such a lifetime when it expects the link, or the peer lane, to be free. Beginning it
// earlier moves nothing: a prefetch waits for its bytes and for its turn on the link, never for a position;
// so does an op of the peer lane.
#pragma once

#include <vector>

#include "offload/plan/problem/buckets.h"
#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

class Claims {
 public:
  // Keeps references.
  Claims(const Draft& draft, const BucketLayout& layout);

  // Each as early as possible with at most `cap` live bytes at every position. The draft itself keeps to
  // `cap`.
  Draft within(Bytes cap) const;
  // Each as early as the lifetimes that have its bytes before it have ended. Offsets by lifetime.
  Draft at(const std::vector<Bytes>& offsets) const;

 private:
  Bytes bytes_of(LifetimeId id) const { return layout_.buckets[draft_.lifetimes[id].bucket].bytes; }
  void add_gathered();
  Position free_from(LifetimeId id, const std::vector<Bytes>& offsets) const;
  template <typename FreeFrom>
  Draft claimed(FreeFrom&& free_from) const;

  const Draft& draft_;
  const BucketLayout& layout_;
  // Lifetimes that a prefetch or a gather begins, by their place in the queue. No claim changes that order.
  std::vector<LifetimeId> turns_;
  std::vector<Position> earliest_;   // by lifetime: behind the transfer that brought the host its value
  std::vector<LifetimeId> by_last_;  // by rising last
};

}  // namespace stowage
