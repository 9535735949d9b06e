#include "offload/parallel/grid_search.h"

#include <fmt/format.h>

#include <algorithm>
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
    for (Grid& candidate : candidates) {
      if (question_.highest == Rung::sums) {
        answer_.grids.push_back(std::move(candidate));
        continue;
      }
      const double least = candidate.step_seconds;
      if (!is_open() || !costs_.may_plan(candidate.shape) || least * (1 + question_.close_enough) >= best()) {
        // Candidates come by rising value: this one says what all others take at the least.
        answer_.bound = std::min(answer_.bound, least);
        answer_.below.push_back(std::move(candidate));
        continue;
      }
      climb(std::move(candidate));
    }
    sort(answer_.grids);
    sort(answer_.below);
    if (question_.highest == Rung::sums)
      answer_.bound = answer_.grids.empty() ? infinite_seconds : answer_.grids.front().step_seconds;
    if (question_.highest == Rung::plans && !answer_.grids.empty()) improve(answer_.grids.front());
    answer_.bound = has_all_sums_ ? std::min(answer_.bound, best()) : 0;
    answer_.work = costs_.work();
    return std::move(answer_);
  }

  // Returns false if some stage does not fit, or the grid is no faster than `below`.
  bool time(Grid& grid, Rung rung, double below) {
    for (int s = 0; s < grid.shape.stages; ++s) {
      double& seconds = grid.seconds[static_cast<std::size_t>(s)];
      const auto [first, last] = range(grid, s);
      if (rung == Rung::bounds) {
        seconds = std::max(seconds, costs_.bound_seconds(grid.shape, s, first, last));
      } else {
        std::optional<StagePlan> plan = costs_.plan(grid.shape, s, first, last);
        seconds = plan ? plan->seconds : infinite_seconds;
        if (plan) {
          grid.ways[static_cast<std::size_t>(s)] = plan->way_seconds;
          grid.plans.push_back(std::move(*plan));
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
      const auto [first, last] = range(grid, s);
      const HalfBlockSums of = sums.of(first, last);
      grid.seconds.push_back(least_seconds(of, shape.micro_batches, room));
      grid.ways.push_back(of.forward_seconds + of.backward_seconds);
    }
    grid.step_seconds = step_of(grid);
    return grid;
  }

 private:
  static std::pair<std::uint32_t, std::uint32_t> range(const Grid& grid, int stage) {
    const auto s = static_cast<std::size_t>(stage);
    return {grid.cuts[s], grid.cuts[s + 1]};
  }
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
    if (!question_.keep_going(fmt::format("{} stages x {} parts x {} split, {} micro-batches of {}: {}",
                                          grid.shape.stages, grid.shape.parts, grid.shape.split,
                                          grid.shape.micro_batches, grid.shape.samples * grid.shape.parts,
                                          what)))
      answer_.stopped = true;
    return is_open();
  }

  double step_of(Grid& grid) {
    const PrefixSums& sums = costs_.sums(grid.shape);
    grid.sends.clear();
    for (int s = 0; s + 1 < grid.shape.stages; ++s)
      grid.sends.push_back(
          costs_.send_seconds(grid.shape, s, sums.sent_bytes(grid.cuts[static_cast<std::size_t>(s) + 1])));
    return grid_step_seconds(grid.seconds, grid.ways, grid.sends);
  }

  // Returns all shapes by rising value, those without room left out. Where sums are all that is asked, also
  // those that cannot be among the best ones.
  std::vector<Grid> by_sums() {
    std::vector<Grid> grids;
    std::multiset<double> least;  // values of the best few
    for (const GridShape& shape : question_.shapes) {
      if (!question_.keep_going("sums of all grids")) answer_.stopped = true;
      if (answer_.stopped) {
        has_all_sums_ = false;
        break;
      }
      const PrefixSums& sums = costs_.sums(shape);
      const auto stages = static_cast<std::uint32_t>(shape.stages);
      if (stages > sums.half_blocks()) continue;
      ++answer_.shapes;
      const bool is_hopeless =
          question_.highest == Rung::sums && least.size() == few && at_least(sums, shape) > *least.rbegin();
      if (is_hopeless) continue;
      Grid grid = by_sums(shape, even_cuts(sums, stages, shape.micro_batches, costs_.room(shape)));
      if (grid.step_seconds == infinite_seconds) continue;
      least.insert(grid.step_seconds);
      if (least.size() > few) least.erase(std::prev(least.end()));
      grids.push_back(std::move(grid));
    }
    sort(grids);
    answer_.bound = infinite_seconds;
    return grids;
  }
  // Returns what the shape takes at the least, wherever it is cut: some stage has an equal part of the work.
  static double at_least(const PrefixSums& sums, const GridShape& shape) {
    const HalfBlockSums all = sums.of(0, sums.half_blocks());
    const double way = all.forward_seconds + all.backward_seconds;
    return way + static_cast<double>(shape.micro_batches - 1) * way / shape.stages;
  }

  void climb(Grid grid) {
    if (!go_on(grid, "bounds")) return stay(std::move(grid));
    if (!time(grid, Rung::bounds, best())) return stay(std::move(grid));
    if (question_.highest == Rung::bounds) return keep(std::move(grid));
    if (!go_on(grid, "plans")) return stay(std::move(grid));
    answer_.bound = std::min(answer_.bound, grid.step_seconds);
    Grid planned = grid;
    // Where a stage's plan makes the grid slower than the best, the other stages have their bounds.
    if (!time(planned, Rung::plans, best())) return stay(std::move(planned));
    keep(std::move(planned));
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

  // Moves one half-block from the slowest stage to a neighbour, as long as the step becomes shorter.
  void improve(Grid& grid) {
    bool moved = grid.shape.stages > 1;
    while (moved && is_open()) {
      moved = false;
      const auto slowest = static_cast<std::size_t>(
          std::max_element(grid.seconds.begin(), grid.seconds.end()) - grid.seconds.begin());
      for (const bool to_front : {true, false}) {
        if (to_front ? slowest == 0 : slowest + 2 == grid.cuts.size()) continue;
        std::vector<std::uint32_t> cuts = grid.cuts;
        to_front ? ++cuts[slowest] : --cuts[slowest + 1];
        if (cuts[slowest] >= cuts[slowest + 1]) continue;
        Grid next = by_sums(grid.shape, cuts);
        if (next.step_seconds >= grid.step_seconds || !go_on(next, "a half-block less in the slowest stage"))
          continue;
        if (!time(next, Rung::plans, grid.step_seconds)) continue;
        grid = std::move(next);
        best_ = std::min(best_, grid.step_seconds);
        moved = true;
        break;
      }
    }
  }

  GridCosts& costs_;
  const GridQuestion& question_;
  GridSearchAnswer answer_;
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

double grid_step_seconds(const std::vector<double>& stages, const std::vector<double>& ways,
                         const std::vector<double>& sends) {
  double longest = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) longest = std::max(longest, stages[s] - ways[s]);
  return longest + std::accumulate(ways.begin(), ways.end(), 0.0) +
         2 * std::accumulate(sends.begin(), sends.end(), 0.0);
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
