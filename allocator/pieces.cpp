#include "allocator/pieces.h"

#include <bit>
#include <iterator>

namespace stowage::caching {

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
