#include "allocator/granule_runs.h"

#include <algorithm>
#include <bit>
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

std::uint64_t Pieces::granules_each(std::uint64_t run) {
  constexpr std::uint64_t pieces_of_a_run = 64, most = 8;
  return std::bit_floor(std::clamp<std::uint64_t>(run / pieces_of_a_run, 1, most));
}

void Pieces::add(Interval run, std::uint64_t each) {
  for (std::uint64_t at = run.begin; each > 1 && at < run.end; at += each)
    pieces_.emplace(at, std::min(at + each, run.end));
}

void Pieces::remove(Interval run) {
  pieces_.erase(pieces_.lower_bound(run.begin), pieces_.lower_bound(run.end));
}

Interval Pieces::of(std::uint64_t granule) const {
  const auto after = pieces_.upper_bound(granule);
  if (after != pieces_.begin() && std::prev(after)->second > granule)
    return {std::prev(after)->first, std::prev(after)->second};
  return {granule, granule + 1};
}

std::uint64_t length_of(const std::vector<Interval>& runs) {
  std::uint64_t length = 0;
  for (const Interval& run : runs) length += run.length();
  return length;
}

}  // namespace stowage::caching
