// Claims: lets each lifetime that a prefetch, or a gather from other ranks, begins start as soon as its bytes
// are free.
//
// A schedule begins such a lifetime when it expects the link, or the peer lane, to be free. An earlier begin
// moves no instruction to another place in its lane. A prefetch waits for its bytes and for its turn on the
// link, never for a position. An op of the peer lane waits for its bytes and for its turn on that lane.
#pragma once

#include <vector>

#include "offload/plan/problem/buckets.h"
#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

class Claims {
 public:
  // Keeps references.
  Claims(const Draft& draft, const BucketLayout& layout);

  // Returns the draft with each such lifetime begun as early as possible with at most `cap` live bytes at
  // every position. Requires that the draft itself keeps to `cap`.
  Draft within(Bytes cap) const;
  // Returns the draft with each such lifetime begun where the previous owners of its bytes end.
  // `offsets`: by lifetime.
  Draft at(const std::vector<Bytes>& offsets) const;

 private:
  Bytes bytes_of(LifetimeId id) const { return layout_.buckets[draft_.lifetimes[id].bucket].bytes; }
  void add_gathered();
  Position free_from(LifetimeId id, const std::vector<Bytes>& offsets) const;
  template <typename FreeFrom>
  Draft claimed(FreeFrom&& free_from) const;

  const Draft& draft_;
  const BucketLayout& layout_;
  // Lifetimes that a prefetch or a gather begins, in the order in which their lanes work. No claim changes
  // that order.
  std::vector<LifetimeId> turns_;
  // By lifetime: the position from which the host has the lifetime's value. The bucket's previous lifetime,
  // offload included, ends there. The lifetime of the clip scale behind the gate begins at that position.
  std::vector<Position> earliest_;
  std::vector<LifetimeId> by_last_;  // all lifetimes, sorted by `last`
};

}  // namespace stowage
