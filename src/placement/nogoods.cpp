#include "src/placement/nogoods.h"

#include <algorithm>

namespace stowage::placement {
namespace {

constexpr std::size_t enough_bounds = std::size_t{1} << 22;
constexpr std::size_t most_bounds = 2 * enough_bounds;

bool met(const Bound& bound, const Skyline& skyline) {
  return !skyline.placed(bound.item) && skyline.least(bound.item) >= bound.least;
}

}  // namespace

std::span<Bound> Nogoods::bounds(std::size_t nogood) {
  const std::size_t end = nogood + 1 < begins_.size() ? begins_[nogood + 1] : bounds_.size();
  return {bounds_.data() + begins_[nogood], end - begins_[nogood]};
}

void Nogoods::add(const Nogood& nogood, Skyline& skyline) {
  if (bounds_.size() + nogood.size() > most_bounds) return;
  begins_.push_back(bounds_.size());
  bounds_.insert(bounds_.end(), nogood.begin(), nogood.end());
  // The highest bound is likely to be the next to fail.
  const auto highest = std::max_element(nogood.begin(), nogood.end(),
                                        [](const Bound& a, const Bound& b) { return a.least < b.least; });
  watches_[static_cast<std::size_t>(highest->item)].push_back({begins_.size() - 1, highest->least});
  skyline.touch(highest->item);
}

// Moves the watch to the first bound that is not met; false if all are met.
bool Nogoods::move_watch(const Watch& watch, const Skyline& skyline) {
  const std::span<Bound> all = bounds(watch.nogood);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (met(all[i], skyline)) continue;
    watches_[static_cast<std::size_t>(all[i].item)].push_back({watch.nogood, all[i].least});
    std::swap(all[i], all[i / 2]);  // moved forward, so that the next search finds it sooner
    return true;
  }
  return false;
}

bool Nogoods::hold(Skyline& skyline, Nogood& why) {
  std::vector<int>& touched = skyline.touched();
  while (!touched.empty()) {
    const int item = touched.back();
    touched.pop_back();
    skyline.forget_touched(item);
    if (skyline.placed(item)) continue;
    std::vector<Watch>& watches = watches_[static_cast<std::size_t>(item)];
    for (std::size_t i = 0; i < watches.size();) {
      if (skyline.least(item) < watches[i].least) {
        ++i;
        continue;
      }
      const Watch watch = watches[i];
      if (!move_watch(watch, skyline)) {
        const std::span<Bound> all = bounds(watch.nogood);
        why.assign(all.begin(), all.end());
        skyline.touch(item);
        return true;
      }
      watches[i] = watches.back();
      watches.pop_back();
    }
  }
  return false;
}

void Nogoods::trim(Skyline& skyline) {
  if (bounds_.size() < enough_bounds) return;
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < size(); ++i) lengths.push_back(bounds(i).size());
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  const std::size_t longest = *middle;
  std::vector<Nogood> kept;
  for (std::size_t i = 0; i < size(); ++i) {
    const std::span<Bound> all = bounds(i);
    if (all.size() < longest) kept.emplace_back(all.begin(), all.end());
  }
  clear();
  for (const Nogood& nogood : kept) add(nogood, skyline);
}

void Nogoods::clear() {
  bounds_.clear();
  begins_.clear();
  for (auto& watches : watches_) watches.clear();
}

}  // namespace stowage::placement
