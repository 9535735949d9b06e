// ByteOwners: the latest owner of each byte of a region. Owners are lifetimes in the arena, or gradients in
// the gradient ring.
#pragma once

#include <iterator>
#include <map>

#include "stowage/plan.h"

namespace stowage {

class ByteOwners {
 public:
  // Gives [begin, end) to `owner`. Calls `each` with every previous owner of a part of it, perhaps several
  // times with the same owner.
  template <class Function>
  void take(Bytes begin, Bytes end, LifetimeId owner, Function&& each) {
    split(begin);
    split(end);
    auto first = parts_.lower_bound(begin);
    auto last = parts_.lower_bound(end);
    for (auto part = first; part != last; ++part) each(part->second.owner);
    parts_.erase(first, last);
    parts_.emplace(begin, Part{end, owner});
  }

 private:
  struct Part {
    Bytes end = 0;
    LifetimeId owner = no_id;
  };
  void split(Bytes at) {
    auto after = parts_.upper_bound(at);
    if (after == parts_.begin()) return;
    auto part = std::prev(after);
    if (part->first == at || part->second.end <= at) return;
    const Part rest = part->second;
    part->second.end = at;
    parts_.emplace(at, rest);
  }
  std::map<Bytes, Part> parts_;  // parts by their begin
};

}  // namespace stowage
