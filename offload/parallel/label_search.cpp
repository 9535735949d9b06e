#include "offload/parallel/label_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t most_cells = std::size_t{1} << 26U;
constexpr std::uint64_t work_between_questions = std::uint64_t{1} << 16U;
constexpr double equal_bounds = 1e-12;  // relative
constexpr std::size_t least_candidates_to_reduce = 64;

// The stages of layers [first, …), where `next` has those behind this one.
struct Label {
  double way = 0, pace = 0, tail = 0;
  std::uint32_t next = 0;
  std::int32_t last = 0, layout = 0, index = 0;
  StageOption option{};
};

bool no_worse(const Label& a, const Label& b) {
  const double slack = equal_seconds * (b.way + b.tail);
  return a.way <= b.way + slack && a.pace <= b.pace + equal_seconds * b.pace &&
         a.way + a.tail <= b.way + b.tail + slack;
}

// Removes labels that another one of the cell dominates.
void reduce(std::vector<Label>& labels) {
  std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) {
    if (a.way != b.way) return a.way < b.way;
    if (a.pace != b.pace) return a.pace < b.pace;
    return a.tail < b.tail;
  });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const bool dominated = std::any_of(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(kept),
                                       [&](const Label& other) { return no_worse(other, labels[i]); });
    if (!dominated) labels[kept++] = labels[i];
  }
  labels.resize(kept);
}

// The cells of one number of layers.
class CellRow {
 public:
  CellRow(int units, int most_index)
      : width_(most_index + 1), cells_(static_cast<std::size_t>(units + 1) * width_) {}

  struct Range {
    std::uint32_t begin = 0, count = 0;
  };
  Range& at(int units, int index) {
    return cells_[static_cast<std::size_t>(units) * width_ + static_cast<std::size_t>(index)];
  }

 private:
  std::size_t width_;
  std::vector<Range> cells_;
};

class LabelSearch {
 public:
  LabelSearch(SearchSpace& space, const LabelRun& run)
      : space_(space),
        run_(run),
        layers_(space.costs.layers()),
        width_(static_cast<std::size_t>(space.most_index) + 1),
        candidates_(static_cast<std::size_t>(space.units + 1) * width_),
        reduced_(candidates_.size(), 0) {
    rows_.reserve(static_cast<std::size_t>(layers_) + 1);
    for (int i = 0; i <= layers_; ++i) rows_.emplace_back(space.units, space.most_index);
    labels_.emplace_back();  // no stage at all
    rows_.back().at(0, 0) = {0, 1};
  }

  LabelResult result() {
    for (int first = layers_ - 1; first >= 0; --first) {
      add_candidates(first);
      if (!too_many_ && !space_.ended()) keep_candidates(first);
      if (too_many_ || space_.ended()) return {.best = {}, .too_many = too_many_};
    }
    return {.best = best_of_all(), .too_many = false};
  }

 private:
  SearchSpace& space_;
  const LabelRun& run_;
  int layers_;
  std::size_t width_;
  std::vector<CellRow> rows_;                   // by first layer
  std::vector<Label> labels_;                   // of all cells
  std::vector<std::vector<Label>> candidates_;  // of the cells of the row under work
  std::vector<std::size_t> reduced_;            // their sizes when they were last reduced
  bool too_many_ = false;

  double value(double way, double pace, double tail) const {
    return run_.way_alone ? way : space_.question.value(way, pace, tail);
  }
  // Returns the least value that stages of these totals can end with, if `units` are left for `layers`.
  double end_value(double way, double pace, double tail, int layers, int units) const {
    return value(way + space_.front.way(layers, units), std::max(pace, space_.front.pace(layers, units)),
                 tail);
  }
  // Returns whether no pipeline with this stage is below the limit, whatever stands behind it.
  bool hopeless(int first, int layout, const StageOption& best) const {
    if (space_.question.use_all_devices) return false;  // front bounds are those of exact numbers of devices
    const int left = space_.units - space_.units_of(layout);
    return !(end_value(best.way, best.pace, best.tail, first, left) < run_.below);
  }
  bool within_caps(const StageOption& option) const {
    return option.pace <= run_.cap_pace && option.tail <= run_.cap_tail;
  }

  struct Place {
    int units = 0, index = 0;
  };
  std::size_t cell_of(Place place) const {
    return static_cast<std::size_t>(place.units) * width_ + static_cast<std::size_t>(place.index);
  }
  double end_value(const Label& label, int layers, int units) const {
    return end_value(label.way, label.pace, label.tail, layers, units);
  }

  // Returns whether every option of a stage with this best case is above a cap, whatever its sums are rounded
  // to.
  bool above_caps(const StageOption& best) const {
    const double slack = equal_bounds * best.way;
    return best.pace - slack > run_.cap_pace || best.tail - slack > run_.cap_tail;
  }

  void add_candidates(int first) {
    for (int last = first + 1; last <= layers_; ++last) {
      for (const int layout : space_.layouts) {
        const StageOption best = space_.costs.best_case(first, last, layout);
        if (best.way == infinite_seconds || above_caps(best)) continue;
        if (hopeless(first, layout, best)) continue;
        add_stage(first, last, layout);
        if (too_many_ || space_.ended()) return;
      }
    }
  }

  void add_stage(int first, int last, int layout) {
    const int step = space_.costs.index_step(layout);
    const int taken = space_.units_of(layout);
    for (int behind = 0; behind + step <= space_.most_index; ++behind) {
      std::optional<StageOption> bound;
      std::optional<std::span<const StageOption>> options;
      for (int units = 0; units + taken <= space_.units; ++units) {
        const CellRow::Range range = rows_[static_cast<std::size_t>(last)].at(units, behind);
        if (range.count == 0) continue;
        if (!bound) bound = space_.costs.bound(first, last, layout, behind + step);
        if (bound->way == infinite_seconds || hopeless(first, layout, *bound)) break;
        const Place place{units + taken, behind + step};
        if (!space_.go_on(range.count)) return;
        if (!worth_asking(first, place, range, *bound)) continue;
        if (!options) options = space_.costs.options(first, last, layout, behind + step);
        if (options->empty()) break;
        if (!space_.go_on(range.count * (options->size() - 1))) return;
        add_combinations(first, last, layout, place, range, *options);
        if (too_many_) return;
      }
    }
  }

  // Returns whether an option no better than `bound` could make a label of the cell.
  bool worth_asking(int first, Place place, CellRow::Range range, const StageOption& bound) const {
    const int left = space_.units - place.units;
    double below = run_.below;
    const std::vector<Label>& candidates = candidates_[cell_of(place)];
    if (run_.width == 1 && !candidates.empty()) below = end_value(candidates.front(), first, left);
    for (std::uint32_t next = range.begin; next < range.begin + range.count; ++next) {
      const Label& behind = labels_[next];
      const Label label{behind.way + bound.way, std::max(behind.pace, bound.pace),
                        std::max(behind.tail, bound.tail)};
      if (end_value(label, first, left) < below) return true;
    }
    return false;
  }

  void add_combinations(int first, int last, int layout, Place place, CellRow::Range range,
                        std::span<const StageOption> options) {
    const std::size_t cell = cell_of(place);
    std::vector<Label>& candidates = candidates_[cell];
    const int left = space_.units - place.units;
    for (std::uint32_t next = range.begin; next < range.begin + range.count; ++next) {
      for (const StageOption& option : options) {
        if (!within_caps(option)) continue;
        const Label& behind = labels_[next];
        Label label{behind.way + option.way,
                    std::max(behind.pace, option.pace),
                    std::max(behind.tail, option.tail),
                    next,
                    last,
                    layout,
                    place.index,
                    option};
        const double end = end_value(label, first, left);
        if (!(end < run_.below)) continue;
        if (run_.width > 1 || candidates.empty()) {
          candidates.push_back(label);
        } else if (const Label& kept = candidates.front(); end < end_value(kept, first, left)) {
          candidates.front() = label;
        }
      }
    }
    if (run_.width > 1 && candidates.size() > std::max(least_candidates_to_reduce, 2 * reduced_[cell])) {
      reduce(candidates);
      reduced_[cell] = candidates.size();
      too_many_ = candidates.size() > run_.width;
    }
  }

  void keep_candidates(int first) {
    for (int units = 0; units <= space_.units; ++units) {
      for (int index = 0; index <= space_.most_index; ++index) {
        const std::size_t cell = cell_of({units, index});
        std::vector<Label>& candidates = candidates_[cell];
        if (candidates.empty()) continue;
        if (run_.width > 1) {
          reduce(candidates);
          too_many_ = too_many_ || candidates.size() > run_.width;
        }
        rows_[static_cast<std::size_t>(first)].at(units, index) = {
            static_cast<std::uint32_t>(labels_.size()), static_cast<std::uint32_t>(candidates.size())};
        labels_.insert(labels_.end(), candidates.begin(), candidates.end());
        candidates.clear();
        reduced_[cell] = 0;
      }
    }
  }

  std::optional<Pipeline> best_of_all() {
    const Label* best = nullptr;
    for (int units = space_.question.use_all_devices ? space_.units : 0; units <= space_.units; ++units) {
      for (int index = 0; index <= space_.most_index; ++index) {
        const CellRow::Range range = rows_.front().at(units, index);
        for (std::uint32_t i = range.begin; i < range.begin + range.count; ++i) {
          const Label& label = labels_[i];
          if (best == nullptr ||
              value(label.way, label.pace, label.tail) < value(best->way, best->pace, best->tail))
            best = &label;
        }
      }
    }
    if (best == nullptr) return {};
    Pipeline pipeline{.stages = {}, .way = best->way, .pace = best->pace, .tail = best->tail};
    int first = 0;
    for (const Label* label = best; first < layers_; label = &labels_[label->next]) {
      pipeline.stages.push_back({first, label->last, label->layout, label->index, label->option});
      first = label->last;
    }
    return pipeline;
  }
};

}  // namespace

FrontBounds::FrontBounds(StageCosts& costs, const SearchQuestion& question, const std::vector<int>& layouts,
                         int unit, const std::function<bool(std::uint64_t)>& go_on)
    : width_(question.devices / unit + 1) {
  const int layers = costs.layers();
  const std::size_t width = static_cast<std::size_t>(width_);
  ways_.assign(static_cast<std::size_t>(layers + 1) * width, infinite_seconds);
  paces_ = ways_;
  // Without use_all_devices more devices than are needed do no harm.
  const std::size_t units_of_none = question.use_all_devices ? 1 : width;
  std::fill_n(ways_.begin(), units_of_none, 0.0);
  std::fill_n(paces_.begin(), units_of_none, 0.0);
  for (int first = 0; first < layers; ++first) {
    for (int last = first + 1; last <= layers; ++last) {
      for (const int layout : layouts) {
        const StageOption best = costs.best_case(first, last, layout);
        if (best.way == infinite_seconds) continue;
        if (!go_on(width)) {
          *this = {};
          return;
        }
        const std::size_t taken =
            static_cast<std::size_t>(costs.layouts()[static_cast<std::size_t>(layout)].devices / unit);
        const std::size_t from = static_cast<std::size_t>(first) * width,
                          to = static_cast<std::size_t>(last) * width;
        for (std::size_t units = taken; units < width; ++units) {
          ways_[to + units] = std::min(ways_[to + units], ways_[from + units - taken] + best.way);
          paces_[to + units] =
              std::min(paces_[to + units], std::max(paces_[from + units - taken], best.pace));
        }
      }
    }
  }
}

SearchSpace::SearchSpace(StageCosts& costs, const SearchQuestion& question, bool bounds)
    : costs(costs), question(question), layouts(question.layouts) {
  const std::span<const StageLayout> all = costs.layouts();
  if (layouts.empty()) {
    layouts.resize(all.size());
    std::iota(layouts.begin(), layouts.end(), 0);
  }
  std::erase_if(layouts,
                [&](int layout) { return all[static_cast<std::size_t>(layout)].devices > question.devices; });
  int fewest = question.devices, largest_step = 0;
  unit = 0;
  for (const int layout : layouts) {
    const int devices = all[static_cast<std::size_t>(layout)].devices;
    unit = std::gcd(unit, devices);
    fewest = std::min(fewest, devices);
    largest_step = std::max(largest_step, costs.index_step(layout));
  }
  unit = std::max(unit, 1);
  // Devices that are no multiple of the unit are never all used.
  if (question.use_all_devices && question.devices % unit != 0) layouts.clear();
  units = question.devices / unit;
  const int most_stages = std::min(costs.layers(), question.devices / std::max(fewest, 1));
  most_index =
      largest_step <= 1 ? largest_step * most_stages : std::min(question.devices, largest_step * most_stages);
  const std::size_t cells = static_cast<std::size_t>(costs.layers() + 1) *
                            static_cast<std::size_t>(units + 1) * (static_cast<std::size_t>(most_index) + 1);
  if (cells > most_cells) {
    throw InvalidInput(
        fmt::format("{} layers on {} devices make {} cells of the search, and {} is the most; merge layers "
                    "that are alike, or "
                    "give variants for larger numbers of devices only",
                    costs.layers(), question.devices, cells, most_cells));
  }
  before_ = costs.work();
  if (bounds)
    front = FrontBounds(costs, question, layouts, unit,
                        [this](std::uint64_t combinations) { return go_on(combinations); });
}

int SearchSpace::units_of(int layout) const {
  return costs.layouts()[static_cast<std::size_t>(layout)].devices / unit;
}

bool SearchSpace::go_on(std::uint64_t combinations) {
  work_ += combinations;
  const std::uint64_t all = work();
  if (all > question.most_work) ended_ = true;
  if (!ended_ && all - asked_at_ >= work_between_questions) {
    asked_at_ = all;
    stopped_ = !question.keep_going(all);
    ended_ = stopped_;
  }
  return !ended_;
}

double SearchSpace::bound() const {
  const int layers = costs.layers();
  return question.value(front.way(layers, units), front.pace(layers, units), 0);
}

LabelResult run_labels(SearchSpace& space, const LabelRun& run) { return LabelSearch(space, run).result(); }

}  // namespace stowage
