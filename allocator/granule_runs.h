// GranuleRuns: a set of granules, kept as runs. Pure data, not synchronised.
#pragma once

#include <cstdint>
#include <map>

#include "allocator/gap_index.h"

namespace stowage::caching {

class GranuleRuns {
 public:
  // Precondition: none of them is in the set.
  void add(Interval run);
  // Those that are in the set leave it; returns how many.
  std::uint64_t remove(Interval run);
  std::uint64_t count_in(Interval run) const;
  std::uint64_t count() const { return count_; }
  const std::map<std::uint64_t, std::uint64_t>& runs() const { return runs_; }  // end by begin
  // Calls gap(interval) for the parts of `run` that are not in the set.
  template <class Function>
  void for_each_missing(Interval run, Function&& gap) const;

 private:
  // The first run that ends behind `granule`.
  std::map<std::uint64_t, std::uint64_t>::const_iterator first_behind(std::uint64_t granule) const;

  std::map<std::uint64_t, std::uint64_t> runs_;  // apart from each other
  std::uint64_t count_ = 0;
};

template <class Function>
void GranuleRuns::for_each_missing(Interval run, Function&& gap) const {
  for (auto at = first_behind(run.begin); at != runs_.end() && at->first < run.end; ++at) {
    if (run.begin < at->first) gap(Interval{run.begin, at->first});
    run.begin = at->second;
  }
  if (!run.empty()) gap(run);
}

}  // namespace stowage::caching
