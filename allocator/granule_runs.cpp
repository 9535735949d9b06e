#include "allocator/granule_runs.h"

#include <algorithm>
#include <iterator>

namespace stowage::caching {

std::map<std::uint64_t, std::uint64_t>::const_iterator GranuleRuns::first_behind(
    std::uint64_t granule) const {
  auto at = runs_.upper_bound(granule);
  if (at != runs_.begin() && std::prev(at)->second > granule) --at;
  return at;
}

void GranuleRuns::add(Interval run) {
  if (run.empty()) return;
  count_ += run.length();
  auto after = runs_.lower_bound(run.begin);
  if (after != runs_.end() && after->first == run.end) {
    run.end = after->second;
    after = runs_.erase(after);
  }
  if (after != runs_.begin() && std::prev(after)->second == run.begin)
    std::prev(after)->second = run.end;
  else
    runs_.emplace_hint(after, run.begin, run.end);
}

std::uint64_t GranuleRuns::remove(Interval run) {
  if (run.empty()) return 0;
  std::uint64_t removed = 0;
  for (auto at = first_behind(run.begin); at != runs_.end() && at->first < run.end;) {
    const Interval old{at->first, at->second};
    at = runs_.erase(at);
    if (old.begin < run.begin) runs_.emplace_hint(at, old.begin, run.begin);
    if (old.end > run.end) at = runs_.emplace_hint(at, run.end, old.end);
    removed += std::min(old.end, run.end) - std::max(old.begin, run.begin);
  }
  count_ -= removed;
  return removed;
}

std::uint64_t GranuleRuns::count_in(Interval run) const {
  std::uint64_t count = 0;
  if (run.empty()) return 0;
  for (auto at = first_behind(run.begin); at != runs_.end() && at->first < run.end; ++at)
    count += std::min(at->second, run.end) - std::max(at->first, run.begin);
  return count;
}

}  // namespace stowage::caching
