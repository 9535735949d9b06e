#include "offload/parallel/grid_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "offload/parallel/layer_choice.h"

namespace stowage {
namespace {

constexpr std::size_t few = 16;  // grids that are kept where sums are all that is asked

class GridSearch {
 public:
  GridSearch(GridCosts& costs, const GridQuestion& question) : costs_(costs), question_(question) {}

  GridSearchAnswer run() {
    std::vector<Grid> candidates = by_sums();
    if (question_.highest == Rung::sums)
      answer_.grids = std::move(candidates);
    else
      climb_all(std::move(candidates));
    sort(answer_.grids);
    sort(answer_.below);
    if (question_.highest == Rung::sums)
      answer_.bound = answer_.grids.empty() ? infinite_seconds : answer_.grids.front().step_seconds;
    if (question_.highest == Rung::plans && !answer_.grids.empty()) improve(answer_.grids.front());
    answer_.bound = has_all_sums_ ? std::min(answer_.bound, best()) : 0;
    answer_.work = costs_.work();
    return std::move(answer_);
  }

  // Returns false if some stage does not fit, or the grid is no faster than `below`. The stage that is
  // slowest so far comes first.
  bool time(Grid& grid, Rung rung, double below) {
    std::vector<std::size_t> stages(grid.seconds.size());
    std::iota(stages.begin(), stages.end(), 0U);
    std::stable_sort(stages.begin(), stages.end(),
                     [of = grid.seconds](std::size_t a, std::size_t b) { return of[a] > of[b]; });
    if (rung == Rung::plans) grid.plans.resize(stages.size());
    for (const std::size_t s : stages) {
      double& seconds = grid.seconds[s];
      const int stage = static_cast<int>(s);
      const std::vector<HalfBlocks> ranges = ranges_of(grid.shape, grid.cuts, stage);
      if (rung == Rung::bounds) {
        seconds = std::max(seconds, costs_.bound_seconds(grid.shape, stage, ranges));
      } else {
        std::optional<StagePlan> plan = costs_.plan(grid.shape, stage, ranges);
        seconds = plan ? plan->seconds : infinite_seconds;
        if (plan) {
          grid.ways[s] = plan->way_seconds;
          grid.plans[s] = std::move(*plan);
        }
      }
      grid.step_seconds = step_of(grid);
      if (grid.step_seconds >= below) return false;
    }
    grid.rung = rung;
    return true;
  }
  Grid by_sums(const GridShape& shape, std::vector<std::uint32_t> cuts) {
    const PrefixSums& sums = costs_.sums(shape);
    const StageRoom room = costs_.room(shape);
    Grid grid{shape, std::move(cuts), Rung::sums, {}, {}, {}, 0, {}};
    for (int s = 0; s < shape.stages; ++s) {
      const HalfBlockSums of = sums.of(ranges_of(shape, grid.cuts, s));
      grid.seconds.push_back(least_seconds(of, shape.micro_batches, room));
      grid.ways.push_back((of.forward_seconds + of.backward_seconds) / shape.ranges);
    }
    grid.step_seconds = step_of(grid);
    return grid;
  }

 private:
  static void sort(std::vector<Grid>& grids) {
    std::stable_sort(grids.begin(), grids.end(),
                     [](const Grid& a, const Grid& b) { return a.step_seconds < b.step_seconds; });
  }
  double best() const { return std::min(question_.below, best_); }
  bool is_open() {
    if (answer_.stopped || answer_.limited) return false;
    answer_.limited = costs_.work() >= question_.most_work;
    return !answer_.limited;
  }
  bool go_on(const Grid& grid, const char* what) {
    if (!question_.keep_going(
            fmt::format("{} stages of {} ranges x {} parts x {} split, {} micro-batches of {}: {}",
                        grid.shape.stages, grid.shape.ranges, grid.shape.parts, grid.shape.split,
                        grid.shape.micro_batches, grid.shape.samples * grid.shape.parts, what)))
      answer_.stopped = true;
    return is_open();
  }

  double step_of(Grid& grid) {
    const PrefixSums& sums = costs_.sums(grid.shape);
    grid.sends.clear();
    for (int s = 0; s + 1 < grid.shape.stages; ++s)
      grid.sends.push_back(
          costs_.send_seconds(grid.shape, s, sums.sent_bytes(grid.cuts[static_cast<std::size_t>(s) + 1])));
    return grid_step_seconds(grid.shape, grid.seconds, grid.ways, grid.sends);
  }

  // Returns all shapes by rising value, those without room left out. Where sums are all that is asked, also
  // those that cannot be among the best ones.
  std::vector<Grid> by_sums() {
    std::vector<Grid> grids;
    std::multiset<double> least;  // values of the best few
    for (const auto& [at_least, shape] : by_rising_least()) {
      if (!goes_on_with_sums()) break;
      ++answer_.shapes;
      const bool is_hopeless =
          question_.highest == Rung::sums && least.size() == few && at_least > *least.rbegin();
      if (is_hopeless) continue;
      Grid grid = by_sums(shape, even_cuts(costs_, shape));
      if (grid.step_seconds == infinite_seconds) continue;
      least.insert(grid.step_seconds);
      if (least.size() > few) least.erase(std::prev(least.end()));
      grids.push_back(std::move(grid));
    }
    sort(grids);
    answer_.bound = infinite_seconds;
    return grids;
  }
  bool goes_on_with_sums() {
    if (!question_.keep_going("sums of all grids")) answer_.stopped = true;
    if (answer_.stopped) has_all_sums_ = false;
    return !answer_.stopped;
  }
  // Returns the shapes that have half-blocks for all ranges, with what each takes at the least.
  std::vector<std::pair<double, GridShape>> by_rising_least() {
    std::vector<std::pair<double, GridShape>> shapes;
    for (const GridShape& shape : question_.shapes) {
      if (!goes_on_with_sums()) break;
      const PrefixSums& sums = costs_.sums(shape);
      if (static_cast<std::uint32_t>(shape.stages * shape.ranges) <= sums.half_blocks())
        shapes.emplace_back(at_least(sums, shape), shape);
    }
    std::stable_sort(shapes.begin(), shapes.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return shapes;
  }
  // Returns what the shape takes at the least, wherever it is cut: some stage has an equal part of the work.
  static double at_least(const PrefixSums& sums, const GridShape& shape) {
    const HalfBlockSums all = sums.of(0, sums.half_blocks());
    const double way = (all.forward_seconds + all.backward_seconds) / shape.ranges;
    return way + (static_cast<double>(shape.micro_batches * shape.ranges) - 1) * way / shape.stages;
  }

  // The candidate of the least value climbs one rung at a time, so that none does whose value is above the
  // best plan's.
  void climb_all(std::vector<Grid> candidates) {
    for (Grid& candidate : candidates) open_.emplace(candidate.step_seconds, std::move(candidate));
    while (!open_.empty()) {
      Grid grid = std::move(open_.extract(open_.begin()).mapped());
      const bool is_close = grid.step_seconds * (1 + question_.close_enough) >= best();
      if (is_close || !is_open() || !costs_.may_plan(grid.shape))
        stay(std::move(grid));
      else if (grid.rung == Rung::sums)
        bound(std::move(grid));
      else
        plan(most_promising(std::move(grid)));
    }
  }
  // A grid's stages, parts and split: plans of such grids exceed their bounds by about as much.
  using Kind = std::array<int, 3>;
  static Kind kind_of(const Grid& grid) { return {grid.shape.stages, grid.shape.parts, grid.shape.split}; }
  // Returns the bounded candidate whose bound, times what plans of its kind took over theirs, is least.
  Grid most_promising(Grid grid) {
    const auto guess = [&](const Grid& of) {
      const auto known = over_bound_.find(kind_of(of));
      return known == over_bound_.end() ? of.step_seconds : of.step_seconds * known->second;
    };
    auto best = open_.end();
    double least = guess(grid);
    for (auto of = open_.begin(); of != open_.end(); ++of) {
      if (of->second.rung != Rung::bounds || guess(of->second) >= least) continue;
      best = of;
      least = guess(of->second);
    }
    if (best == open_.end()) return grid;
    const double value = grid.step_seconds;
    open_.emplace(value, std::move(grid));
    return std::move(open_.extract(best).mapped());
  }
  void bound(Grid grid) {
    if (!go_on(grid, "bounds") || !time(grid, Rung::bounds, best())) return stay(std::move(grid));
    if (question_.highest == Rung::bounds) return keep(std::move(grid));
    const double value = grid.step_seconds;
    open_.emplace(value, std::move(grid));
  }
  void plan(Grid grid) {
    if (!go_on(grid, "plans")) return stay(std::move(grid));
    answer_.bound = std::min(answer_.bound, grid.step_seconds);
    Grid planned = grid;
    // Where a stage's plan makes the grid slower than the best, the other stages have their bounds.
    const bool is_better = time(planned, Rung::plans, best());
    const double over = planned.step_seconds / grid.step_seconds;
    double& known = over_bound_.try_emplace(kind_of(grid), over).first->second;
    known = std::min(known, over);
    if (is_better)
      keep(std::move(planned));
    else
      stay(std::move(planned));
  }
  void stay(Grid grid) {
    grid.plans.clear();
    if (grid.step_seconds == infinite_seconds) return;  // a stage does not fit
    answer_.bound = std::min(answer_.bound, grid.step_seconds);
    answer_.below.push_back(std::move(grid));
  }
  void keep(Grid grid) {
    best_ = std::min(best_, grid.step_seconds);
    answer_.grids.push_back(std::move(grid));
  }

  // Tries the other order of one range, then moves one half-block from the slowest stage to a neighbour, as
  // long as the step becomes shorter and the slowest stage is not close to the mean.
  void improve(Grid& grid) {
    if (grid.shape.stages == 1) return;
    if (grid.shape.ranges == 1 && grid.shape.micro_batches > grid.shape.stages) {
      GridShape other = grid.shape;
      other.order = other.order == GridOrder::gpipe ? GridOrder::one_f_one_b : GridOrder::gpipe;
      replace(grid, by_sums(other, grid.cuts), "the other order");
    }
    while (is_open() && !is_balanced(grid) && move_half_block(grid)) {
    }
  }
  bool is_balanced(const Grid& grid) const {
    const double all = std::accumulate(grid.seconds.begin(), grid.seconds.end(), 0.0);
    return *std::max_element(grid.seconds.begin(), grid.seconds.end()) * grid.shape.stages <
           all * (1 + question_.close_enough);
  }
  bool move_half_block(Grid& grid) {
    const auto stages = static_cast<std::size_t>(grid.shape.stages);
    const auto slowest = static_cast<std::size_t>(std::max_element(grid.seconds.begin(), grid.seconds.end()) -
                                                  grid.seconds.begin());
    for (std::size_t range = slowest; range + 1 < grid.cuts.size(); range += stages)
      for (const bool to_front : {true, false}) {
        if (to_front ? range == 0 : range + 2 == grid.cuts.size()) continue;
        std::vector<std::uint32_t> cuts = grid.cuts;
        to_front ? ++cuts[range] : --cuts[range + 1];
        if (cuts[range] >= cuts[range + 1]) continue;
        if (replace(grid, by_sums(grid.shape, cuts), "a half-block less in the slowest stage")) return true;
      }
    return false;
  }
  // Takes `next` in place of the grid if its plans are faster.
  bool replace(Grid& grid, Grid next, const char* what) {
    if (next.step_seconds >= grid.step_seconds || !go_on(next, what)) return false;
    if (!time(next, Rung::plans, grid.step_seconds)) return false;
    grid = std::move(next);
    best_ = std::min(best_, grid.step_seconds);
    return true;
  }

  GridCosts& costs_;
  const GridQuestion& question_;
  GridSearchAnswer answer_;
  std::multimap<double, Grid> open_;   // candidates by value
  std::map<Kind, double> over_bound_;  // least of a plan's step over its bound
  double best_ = infinite_seconds;
  bool has_all_sums_ = true;
};

}  // namespace

std::uint32_t GridShape::ahead(int stage) const {
  const std::int64_t most = order == GridOrder::gpipe ? micro_batches : stages - stage;
  return static_cast<std::uint32_t>(std::min(micro_batches, most));
}

std::string_view to_string(Rung rung) {
  return rung == Rung::sums ? "sums" : rung == Rung::bounds ? "bounds" : "plans";
}

std::vector<HalfBlocks> ranges_of(const GridShape& shape, const std::vector<std::uint32_t>& cuts, int stage) {
  std::vector<HalfBlocks> ranges;
  const auto stages = static_cast<std::size_t>(shape.stages);
  for (auto i = static_cast<std::size_t>(stage); i + 1 < cuts.size(); i += stages)
    ranges.push_back({cuts[i], cuts[i + 1]});
  return ranges;
}

double way_back_seconds(const std::vector<double>& sends) {
  return sends.empty() ? 0 : *std::max_element(sends.begin(), sends.end());
}

double grid_step_seconds(const GridShape& shape, const std::vector<double>& stages,
                         const std::vector<double>& ways, const std::vector<double>& sends) {
  double longest = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) longest = std::max(longest, stages[s] - ways[s]);
  const double way =
      std::accumulate(ways.begin(), ways.end(), 0.0) + 2 * std::accumulate(sends.begin(), sends.end(), 0.0);
  // Of all micro-batches in a range.
  const double in_range = (longest + *std::min_element(ways.begin(), ways.end())) / shape.ranges;
  const double wait = std::max(0.0, way + 2 * way_back_seconds(sends) - in_range);
  return longest + way + (shape.ranges - 1) * wait;
}

// Ranges have equal parts of the device's memory. Whether the stage fits into the host's is seen when all
// its ranges are known.
std::vector<std::uint32_t> even_cuts(GridCosts& costs, const GridShape& shape) {
  StageRoom room = costs.room(shape);
  if (room.arena != unlimited) room.arena /= static_cast<Bytes>(shape.ranges);
  if (shape.ranges > 1) room.host = unlimited;
  return even_cuts(costs.sums(shape), static_cast<std::uint32_t>(shape.stages * shape.ranges),
                   shape.micro_batches, room);
}

GridSearchAnswer search_grids(GridCosts& costs, const GridQuestion& question) {
  return GridSearch(costs, question).run();
}

std::optional<Grid> time_grid(GridCosts& costs, const GridShape& shape,
                              const std::vector<std::uint32_t>& cuts, Rung highest) {
  const GridQuestion question{};
  GridSearch search(costs, question);
  Grid grid = search.by_sums(shape, cuts);
  if (grid.step_seconds == infinite_seconds) return {};
  if (highest >= Rung::bounds && !search.time(grid, Rung::bounds, infinite_seconds)) return {};
  if (highest == Rung::plans && !search.time(grid, Rung::plans, infinite_seconds)) return {};
  return grid;
}

}  // namespace stowage
