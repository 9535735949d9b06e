// The least largest stage: for a cap on the pace, the fewest devices on which all stages stay below it, in a
// cell for each number of layers and each index. The cap is halved down to the least that works.
#include <algorithm>
#include <cmath>

#include "offload/parallel/label_search.h"

namespace stowage {
namespace {

constexpr int no_devices = most_parallel_devices + 1;

class LargestStageSearch {
 public:
  explicit LargestStageSearch(SearchSpace& space)
      : space_(space),
        layers_(space.costs.layers()),
        width_(static_cast<std::size_t>(space.most_index) + 1) {}

  SearchAnswer answer() {
    double infeasible = std::nextafter(space_.bound(), 0.0);
    try_cap(infinite_seconds);
    while (best_ && !space_.ended() && infeasible < best_->pace) {
      const double below_best = std::nextafter(best_->pace, 0.0);
      double cap = infeasible + (best_->pace - infeasible) / 2;
      if (!(cap > infeasible && cap < below_best)) cap = below_best;
      if (cap <= infeasible) break;
      if (!try_cap(cap) && !space_.ended()) infeasible = cap;
    }
    const bool proven = !space_.ended();
    if (best_ && !(best_->pace < space_.question.below)) best_.reset();
    SearchAnswer answer{.best = best_,
                        .bound = infinite_seconds,
                        .proven = proven,
                        .stopped = space_.stopped(),
                        .work = space_.work()};
    if (best_) answer.bound = proven ? best_->pace : std::max(0.0, infeasible);
    return answer;
  }

 private:
  // The stages from a layer on, with a given index, on the fewest devices.
  struct Cell {
    int devices = no_devices;
    int last = 0, layout = 0, next_index = 0;
    StageOption option;
  };

  SearchSpace& space_;
  int layers_;
  std::size_t width_;
  std::vector<Cell> cells_;
  std::optional<Pipeline> best_;

  Cell& cell(int layer, int index) {
    return cells_[static_cast<std::size_t>(layer) * width_ + static_cast<std::size_t>(index)];
  }

  // Returns whether there is a pipeline whose stages all have a pace of `cap` or less, and keeps it.
  bool try_cap(double cap) {
    cells_.assign(static_cast<std::size_t>(layers_ + 1) * width_, {});
    cell(layers_, 0).devices = 0;
    for (int first = layers_ - 1; first >= 0; --first) {
      for (int last = first + 1; last <= layers_; ++last) {
        for (const int layout : space_.layouts) {
          if (!space_.go_on(1)) return false;
          if (space_.costs.best_case(first, last, layout).pace <= cap) add_stage(first, last, layout, cap);
        }
      }
    }
    return keep_best();
  }

  // Returns the option of least pace, if that is at most `cap`.
  std::optional<StageOption> option_below(int first, int last, int layout, int index, double cap) {
    std::optional<StageOption> best;
    if (space_.costs.bound(first, last, layout, index).pace > cap) return best;
    for (const StageOption& option : space_.costs.options(first, last, layout, index)) {
      if (option.pace <= cap && (!best || option.pace < best->pace)) best = option;
    }
    return best;
  }

  void add_stage(int first, int last, int layout, double cap) {
    const int step = space_.costs.index_step(layout);
    const int devices = space_.costs.layouts()[static_cast<std::size_t>(layout)].devices;
    const int most = highest_index(first, last, layout, cap);
    for (int index = step; index <= most; ++index) {
      const Cell& behind = cell(last, index - step);
      const int all = behind.devices + devices;
      if (all > space_.question.devices || all >= cell(first, index).devices) continue;
      cell(first, index) = {all, last, layout, index - step, {}};
    }
    space_.go_on(static_cast<std::uint64_t>(std::max(0, most - step)));
  }

  // Returns the highest index at which the stage keeps the cap; a higher one leaves it less memory. -1: none.
  int highest_index(int first, int last, int layout, double cap) {
    const int step = space_.costs.index_step(layout);
    if (!option_below(first, last, layout, step, cap)) return -1;
    if (step == 0) return 0;
    int kept = step, lost = space_.most_index + 1;
    while (lost - kept > 1) {
      const int middle = kept + (lost - kept) / 2;
      (option_below(first, last, layout, middle, cap) ? kept : lost) = middle;
    }
    return kept;
  }

  bool keep_best() {
    int index = 0;
    for (int other = 1; other <= space_.most_index; ++other) {
      if (cell(0, other).devices < cell(0, index).devices) index = other;
    }
    if (cell(0, index).devices > space_.question.devices) return false;
    best_ = Pipeline{};
    for (int first = 0; first < layers_;) {
      const Cell at = cell(first, index);
      // The option of least pace; among the stages of one cap it is as good as any.
      const StageOption option = *option_below(first, at.last, at.layout, index, infinite_seconds);
      best_->stages.push_back({first, at.last, at.layout, index, option});
      best_->way += option.way;
      best_->pace = std::max(best_->pace, option.pace);
      best_->tail = std::max(best_->tail, option.tail);
      index = at.next_index;
      first = at.last;
    }
    return true;
  }
};

}  // namespace

SearchAnswer least_largest_stage(SearchSpace& space) { return LargestStageSearch(space).answer(); }

}  // namespace stowage
