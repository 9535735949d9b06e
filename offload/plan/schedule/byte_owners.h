// Which lifetime had which bytes of the arena last, as instructions take them over one after another.
#pragma once

#include <iterator>
#include <map>

#include "stowage/plan.h"

namespace stowage {

class ByteOwners {
 public:
  // Gives [begin, end) to `owner`, and tells `each` who had parts of it; one owner perhaps several times.
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
  std::map<Bytes, Part> parts_;  // by their begin
};

}  // namespace stowage
