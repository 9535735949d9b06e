// GapIndex: the address space of one zone of the heap that no block holds, and where a block fits best.
//
// Pure geometry: it knows neither what is mapped nor who may use it. Physical memory comes in granules, which
// can be moved from one address to another while no block touches them ("clean"). A place for a block
// therefore costs the clean granules that it takes; its other granules are held by blocks already. Among
// places of equal cost the tightest is offered first, so that partly used granules stay few.
//
//   granules   |       |       |       |       |
//   blocks     #####                        ####
//   gap             [--------------------)          two clean granules, a fragment on each side
//
// Blocks much smaller than a granule nearly always cost no clean granule or one; for them a tight place keeps
// free memory together (best fit).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "stowage/bytes.h"

namespace stowage::caching {

// A half-open range of bytes or of granules.
struct Interval {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t length() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

enum class Fit : std::uint8_t { cheapest, tightest };

class GapIndex {
 public:
  explicit GapIndex(Bytes granule, Fit fit = Fit::cheapest) : granule_(granule), fit_(fit) {}

  // `added` joins the gaps that it touches. Returns the granules that are clean now and were not before.
  // REQUIRES: `added` overlaps no gap.
  Interval add(Interval added);
  // REQUIRES: `taken` lies inside one gap.
  void take(Interval taken);

  // Returns the number of clean granules that `place`, inside one gap, would take.
  Interval clean_granules(Interval place) const;

  // Calls `offer(place)` for places of `bytes` > 0 bytes, by cost and then tightness, or by tightness alone,
  // until it returns true. At most `breadth` places of each kind; all gaps are among the kinds, so that
  // without a limit the cheapest is met.
  template <class Offer>
  void for_each_place(Bytes bytes, std::size_t breadth, Offer&& offer) const;

  const std::map<Bytes, Bytes>& gaps() const { return gaps_; }  // maps the begin of each gap to its end

 private:
  // A gap's clean granules (counted as 0 if the tightest place is wanted), length and begin.
  using Shape = std::tuple<std::uint64_t, Bytes, Bytes>;
  // Returns the clean granules of a gap. The range may be empty, and begins one past its end if the gap lies
  // inside one granule.
  Interval clean(Interval gap) const { return {(gap.begin + granule_ - 1) / granule_, gap.end / granule_}; }
  std::uint64_t clean_count(Interval gap) const {
    const Interval granules = clean(gap);
    return granules.empty() ? 0 : granules.length();
  }
  // Returns the place in a gap: its begin if the tightest is wanted. Else, of the places that take the fewest
  // clean granules, the one that touches fewest in all, since the block holds each granule that it touches.
  Interval within(Interval gap, Bytes bytes) const;
  std::pair<std::uint64_t, std::uint64_t> cost_in(Interval gap, Interval place) const;
  Shape shape_of(Interval gap) const {
    return {fit_ == Fit::tightest ? 0 : clean_count(gap), gap.length(), gap.begin};
  }
  void insert(Interval gap);
  void erase(std::map<Bytes, Bytes>::iterator gap);

  struct Fragment {
    Bytes length = 0;
    Bytes gap = 0;  // the begin of the gap
    bool right = false;
    friend auto operator<=>(const Fragment&, const Fragment&) = default;
  };

  Bytes granule_;
  Fit fit_;
  std::map<Bytes, Bytes> gaps_;
  std::set<Shape> shapes_;
  std::set<Fragment> fragments_;  // partly used granules at the sides of gaps that have clean granules
};

template <class Offer>
void GapIndex::for_each_place(Bytes bytes, std::size_t breadth, Offer&& offer) const {
  const std::uint64_t whole = fit_ == Fit::tightest ? 0 : bytes / granule_;
  const Bytes rest = bytes % granule_;
  const auto in_gaps_of = [&](std::uint64_t granules) {
    std::size_t tried = 0;
    for (auto at = shapes_.lower_bound({granules, bytes, 0});
         at != shapes_.end() && std::get<0>(*at) == granules && tried < breadth; ++at, ++tried)
      if (offer(within({std::get<2>(*at), std::get<2>(*at) + std::get<1>(*at)}, bytes))) return true;
    return false;
  };
  if (whole > 0 && in_gaps_of(whole - 1)) return;
  if (in_gaps_of(whole) || fit_ == Fit::tightest) return;
  std::size_t tried = 0;
  for (auto at = fragments_.lower_bound({rest, 0, false}); at != fragments_.end() && tried < breadth; ++at) {
    const Interval gap{at->gap, gaps_.find(at->gap)->second};
    if (clean_count(gap) <= whole) continue;  // gap was offered above, or is too short
    ++tried;
    const Bytes begin = at->right ? gap.end - bytes : gap.begin;
    if (offer(rest == 0 ? within(gap, bytes) : Interval{begin, begin + bytes})) return;
  }
  tried = 0;
  for (auto at = shapes_.lower_bound({whole + 1, 0, 0}); at != shapes_.end() && tried < breadth;
       ++at, ++tried)
    if (offer(within({std::get<2>(*at), std::get<2>(*at) + std::get<1>(*at)}, bytes))) return;
}

}  // namespace stowage::caching
