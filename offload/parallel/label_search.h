// One dynamic program for all searches of search.h but the largest stage's: from the last layer to the first,
// a cell for each number of layers, devices and index, with the pipelines of those layers that are worth
// keeping.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "offload/parallel/search.h"

namespace stowage {

// Relative difference below which two sums of the same seconds, added in another order, count as equal.
inline constexpr double equal_seconds = 1e-14;

// Lower bounds on the stages in front: layers [0, i) on `k` units of devices.
class FrontBounds {
 public:
  FrontBounds() = default;  // bounds of 0
  // `go_on` counts the work; if it returns false, the bounds are 0.
  FrontBounds(StageCosts& costs, const SearchQuestion& question, const std::vector<int>& layouts, int unit,
              const std::function<bool(std::uint64_t)>& go_on);

  // Returns the shortest way and the least largest pace; infinite where the layers have no stages at all.
  double way(int layers, int units) const { return at(ways_, layers, units); }
  double pace(int layers, int units) const { return at(paces_, layers, units); }

 private:
  int width_ = 0;  // units + 1
  std::vector<double> ways_, paces_;

  double at(const std::vector<double>& values, int layers, int units) const {
    return width_ == 0 ? 0
                       : values[static_cast<std::size_t>(layers) * width_ + static_cast<std::size_t>(units)];
  }
};

// State that all runs of one search share: its layouts, the unit in which it counts devices, bounds, and its
// work.
class SearchSpace {
 public:
  // Throws InvalidInput for so many cells that they would not fit in memory. `bounds`: compute FrontBounds.
  SearchSpace(StageCosts& costs, const SearchQuestion& question, bool bounds);

  StageCosts& costs;
  const SearchQuestion& question;
  std::vector<int> layouts;
  int unit = 1;   // devices; divides those of every layout
  int units = 0;  // of all devices
  int most_index = 0;
  FrontBounds front;

  int units_of(int layout) const;
  // Counts work. Returns false if the search has to end; `stopped`: since keep_going said so.
  bool go_on(std::uint64_t combinations);
  std::uint64_t work() const { return work_ + costs.work() - before_; }
  bool ended() const { return ended_; }
  bool stopped() const { return stopped_; }
  // Returns a value that no pipeline is below.
  double bound() const;

 private:
  std::uint64_t work_ = 0, asked_at_ = 0;
  std::uint64_t before_ = 0;  // StageCosts::work
  bool ended_ = false, stopped_ = false;
};

// One run of the program.
struct LabelRun {
  std::size_t width = 1;               // labels in a cell; 1: that of least value
  double below = infinite_seconds;     // labels that cannot end with less value are dropped
  double cap_pace = infinite_seconds;  // of every stage
  double cap_tail = infinite_seconds;
  bool way_alone = false;  // the value of a pipeline is its way
};

struct LabelResult {
  std::optional<Pipeline> best;
  bool too_many = false;  // more labels in a cell than `width`, which was above 1: `best` is not set
};

LabelResult run_labels(SearchSpace& space, const LabelRun& run);

// Finds the best pipeline by caps on pace and tail; `best`: one that is known already.
SearchAnswer enumerate_caps(SearchSpace& space, std::optional<Pipeline> best);

// Finds a pipeline whose largest pace is the least, on at most so many devices.
SearchAnswer least_largest_stage(SearchSpace& space);

}  // namespace stowage
