// The exact search by caps: for every cap on the pace and on the tail, the shortest way below both.
// Rectangles of caps are taken by rising lower bound, and divided until none is below the best pipeline.
#include <algorithm>
#include <queue>

#include "offload/parallel/label_search.h"

namespace stowage {
namespace {

// Caps from one number of `paces_` and `tails_` to another one, both included.
struct CapRectangle {
  std::size_t first_pace = 0, last_pace = 0;
  std::size_t first_tail = 0, last_tail = 0;
  double way = 0;    // the shortest below the largest caps
  double bound = 0;  // of any pipeline whose pace and tail are in the rectangle

  bool single() const { return first_pace == last_pace && first_tail == last_tail; }
};
struct LargerBound {
  bool operator()(const CapRectangle& a, const CapRectangle& b) const { return a.bound > b.bound; }
};

class CapsSearch {
 public:
  explicit CapsSearch(SearchSpace& space, std::optional<Pipeline> best)
      : space_(space), best_(std::move(best)) {
    if (best_) below_ = std::min(below_, value(*best_));
  }

  SearchAnswer answer() {
    collect_caps();
    if (!paces_.empty() && !space_.ended()) {
      push({0, paces_.size() - 1, 0, tails_.size() - 1}, shortest_way(paces_.back(), tails_.back()));
      while (!open_.empty() && !space_.ended() && open_.top().bound < below_) divide();
    }
    SearchAnswer answer{.best = best_,
                        .bound = below_,
                        .proven = !space_.ended(),
                        .stopped = space_.stopped(),
                        .work = space_.work()};
    if (space_.ended()) answer.bound = std::min(below_, open_.empty() ? space_.bound() : open_.top().bound);
    return answer;
  }

 private:
  SearchSpace& space_;
  std::optional<Pipeline> best_;
  double below_ = space_.question.below;
  std::vector<double> paces_, tails_;  // that a stage may have, each once, rising
  std::priority_queue<CapRectangle, std::vector<CapRectangle>, LargerBound> open_;

  double value(const Pipeline& pipeline) const { return space_.question.value(pipeline); }

  void collect_caps() {
    StageCosts& costs = space_.costs;
    for (int first = 0; first < costs.layers(); ++first) {
      for (int last = first + 1; last <= costs.layers(); ++last) {
        for (const int layout : space_.layouts) {
          const int step = costs.index_step(layout);
          // A stage's index is its own step at least; without steps there is one index, 0.
          for (int index = step; index <= space_.most_index; ++index) {
            const std::span<const StageOption> options = costs.options(first, last, layout, index);
            if (options.empty() || !space_.go_on(options.size())) break;
            for (const StageOption& option : options) {
              paces_.push_back(option.pace);
              tails_.push_back(option.tail);
            }
            if (step == 0) break;
          }
        }
      }
    }
    for (std::vector<double>* caps : {&paces_, &tails_}) {
      std::sort(caps->begin(), caps->end());
      caps->erase(std::unique(caps->begin(), caps->end()), caps->end());
    }
  }

  // Infinite if no pipeline is below the caps.
  double shortest_way(double cap_pace, double cap_tail) {
    LabelResult result = run_labels(space_, {.cap_pace = cap_pace, .cap_tail = cap_tail, .way_alone = true});
    if (!result.best) return infinite_seconds;
    const double way = result.best->way;
    if (value(*result.best) < below_) {
      below_ = value(*result.best);
      best_ = std::move(result.best);
    }
    return way;
  }

  void push(CapRectangle rectangle, double way) {
    if (way == infinite_seconds) return;
    rectangle.way = way;
    rectangle.bound = space_.question.value(way, paces_[rectangle.first_pace], tails_[rectangle.first_tail]);
    if (rectangle.bound < below_) open_.push(rectangle);
  }

  void divide() {
    const CapRectangle whole = open_.top();
    open_.pop();
    if (whole.single()) return;  // its pipeline was met, and is no worse than its bound
    const auto worth = [&](double pace, double tail) { return space_.question.value(0, pace, tail); };
    const bool by_pace = whole.first_tail == whole.last_tail ||
                         (whole.first_pace < whole.last_pace &&
                          worth(paces_[whole.last_pace] - paces_[whole.first_pace], 0) >=
                              worth(0, tails_[whole.last_tail] - tails_[whole.first_tail]));
    CapRectangle low = whole, high = whole;
    if (by_pace) {
      low.last_pace = (whole.first_pace + whole.last_pace) / 2;
      high.first_pace = low.last_pace + 1;
    } else {
      low.last_tail = (whole.first_tail + whole.last_tail) / 2;
      high.first_tail = low.last_tail + 1;
    }
    push(high, whole.way);
    push(low, shortest_way(paces_[low.last_pace], tails_[low.last_tail]));
    // A run that was ended early knows nothing of the lower half.
    if (space_.ended()) open_.push(whole);
  }
};

}  // namespace

SearchAnswer enumerate_caps(SearchSpace& space, std::optional<Pipeline> best) {
  return CapsSearch(space, std::move(best)).answer();
}

SearchAnswer search_by_caps(StageCosts& costs, const SearchQuestion& question) {
  SearchSpace space(costs, question, true);
  return enumerate_caps(space, {});
}

}  // namespace stowage
