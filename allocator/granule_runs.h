// GranuleRuns: a set of granules, kept as runs. Pieces: which granules came as one piece of memory, which can
// only be unmapped as a whole. Pure data, not synchronised.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "allocator/gap_index.h"

namespace stowage::caching {

class GranuleRuns {
 public:
  // REQUIRES: no granule of `run` is in the set.
  void add(Interval run);
  // Takes the run's granules out of the set. Returns how many of these were in the set.
  std::uint64_t remove(Interval run);
  std::uint64_t count_in(Interval run) const;
  std::uint64_t count() const { return count_; }
  // Maps the begin of each run to its end.
  const std::map<std::uint64_t, std::uint64_t>& runs() const { return runs_; }
  // Calls gap(interval) for the parts of `run` that are not in the set.
  template <class Function>
  void for_each_missing(Interval run, Function&& gap) const;

 private:
  // Returns the first run that ends behind `granule`.
  std::map<std::uint64_t, std::uint64_t>::const_iterator first_behind(std::uint64_t granule) const;

  std::map<std::uint64_t, std::uint64_t> runs_;  // no two runs touch
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

class Pieces {
 public:
  // Returns the granules in each piece of a run: at most a 64th of it, and 8. Large requests then take few
  // calls of the device, and still leave nearly all of their memory to others when blocks stay in it: a piece
  // that a live block touches cannot move, and its rest serves where it is.
  static std::uint64_t granules_each(std::uint64_t run);

  // Cuts the run into pieces of `each` granules; the last may be shorter.
  void add(Interval run, std::uint64_t each);
  void remove(Interval run);  // REQUIRES: the run consists of whole pieces
  // Returns the piece that holds the granule, or the granule alone if it is in no piece.
  Interval of(std::uint64_t granule) const;

 private:
  // Maps the begin of each piece of several granules to its end.
  std::map<std::uint64_t, std::uint64_t> pieces_;
};

std::uint64_t length_of(const std::vector<Interval>& runs);

// Returns pieces that lie in `runs` (end by begin, apart from each other) and are usable(piece), from the
// highest address down, until they have `most` granules or more. Neighbouring pieces are returned as one run.
template <class Usable>
std::vector<Interval> whole_pieces(const std::map<std::uint64_t, std::uint64_t>& runs, const Pieces& pieces,
                                   std::uint64_t most, Usable&& usable) {
  std::vector<Interval> found;
  for (auto run = runs.rbegin(); run != runs.rend() && most > 0; ++run)
    for (std::uint64_t end = run->second; end > run->first && most > 0;) {
      const Interval piece = pieces.of(end - 1);
      const bool is_whole = piece.begin >= run->first && piece.end == end;
      end = std::max(piece.begin, run->first);
      if (!is_whole || !usable(piece)) continue;
      if (!found.empty() && found.back().begin == piece.end)
        found.back().begin = piece.begin;
      else
        found.push_back(piece);
      most -= std::min(most, piece.length());
    }
  return found;
}

}  // namespace stowage::caching
