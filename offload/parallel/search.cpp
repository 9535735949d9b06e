#include "offload/parallel/search.h"

#include <algorithm>

#include "offload/parallel/label_search.h"

namespace stowage {
namespace {

SearchAnswer ended_early(const SearchSpace& space, std::optional<Pipeline> best) {
  const double bound = std::min(space.bound(), best ? space.question.value(*best) : infinite_seconds);
  return {.best = std::move(best),
          .bound = bound,
          .proven = false,
          .stopped = space.stopped(),
          .work = space.work()};
}

// One label a cell gives a pipeline, a good one as a rule. It limits the labels of the exact run.
SearchAnswer search_by_labels(SearchSpace& space) {
  const SearchQuestion& question = space.question;
  std::optional<Pipeline> best = run_labels(space, {.below = question.below}).best;
  if (space.ended()) return ended_early(space, std::move(best));
  LabelRun exact{.width = std::max<std::size_t>(2, question.techniques.most_labels), .below = question.below};
  if (best && question.techniques.bounds) exact.below = question.value(*best);
  LabelResult result = run_labels(space, exact);
  if (result.too_many) return enumerate_caps(space, std::move(best));
  if (result.best) best = std::move(result.best);
  if (space.ended()) return ended_early(space, std::move(best));
  const double bound = best ? question.value(*best) : question.below;
  return {.best = std::move(best), .bound = bound, .proven = true, .stopped = false, .work = space.work()};
}

// The grids of one layout and one number of stages.
struct GridShape {
  int layout = 0, stages = 0;
  SearchQuestion question;
  double bound = 0;
};

// Shapes by rising bound. Empty if the search ended meanwhile.
std::vector<GridShape> grid_shapes(StageCosts& costs, const SearchQuestion& question, GridsAnswer& answer) {
  std::vector<GridShape> shapes;
  for (std::size_t layout = 0; layout < costs.layouts().size(); ++layout) {
    const StageLayout of = costs.layouts()[layout];
    const int most = std::min(costs.layers(), question.devices / of.devices);
    if (of.mixed || most < 1) continue;
    SearchQuestion all = question;
    all.layouts = {static_cast<int>(layout)};
    all.devices = most * of.devices;
    all.use_all_devices = true;
    all.most_work = question.most_work - std::min(question.most_work, answer.work);
    const SearchSpace space(costs, all, true);  // its bounds are those of each number of stages
    answer.work += space.work();
    answer.stopped = space.stopped();
    if (space.ended()) {
      answer.proven = false;
      return {};
    }
    for (int stages = 1; stages <= most; ++stages) {
      if (question.use_all_devices && stages * of.devices != question.devices) continue;
      const double way = space.front.way(costs.layers(), stages);
      if (way == infinite_seconds) continue;
      GridShape shape{static_cast<int>(layout), stages, all,
                      question.value(way, space.front.pace(costs.layers(), stages), 0)};
      shape.question.devices = stages * of.devices;
      shapes.push_back(std::move(shape));
    }
  }
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const GridShape& a, const GridShape& b) { return a.bound < b.bound; });
  return shapes;
}

}  // namespace

SearchAnswer search_pipeline(StageCosts& costs, const SearchQuestion& question) {
  SearchSpace space(costs, question, true);
  const bool by_fewest_devices =
      question.objective == ParallelObjective::largest_stage && !question.use_all_devices;
  SearchAnswer answer = by_fewest_devices ? least_largest_stage(space) : search_by_labels(space);
  if (!costs.exact()) {
    answer.proven = false;
    answer.bound = std::min(answer.bound, space.bound());
  }
  return answer;
}

SearchAnswer search_as_printed(StageCosts& costs, const SearchQuestion& question) {
  SearchSpace space(costs, question, false);
  SearchAnswer answer;
  answer.best = run_labels(space, {}).best;
  answer.proven = false;
  answer.stopped = space.stopped();
  answer.work = space.work();
  return answer;
}

GridsAnswer search_grids(StageCosts& costs, const SearchQuestion& question, std::size_t most) {
  GridsAnswer grids;
  for (GridShape& shape : grid_shapes(costs, question, grids)) {
    // The last of the best so far, which another grid has to beat.
    const double last =
        grids.grids.size() < most ? question.below : shape.question.value(*grids.grids.back().answer.best);
    if (!(shape.bound < last)) break;
    if (grids.work > question.most_work || grids.stopped) {
      grids.proven = false;
      break;
    }
    shape.question.below = last;
    shape.question.most_work = question.most_work - grids.work;
    SearchAnswer answer = search_pipeline(costs, shape.question);
    grids.work += answer.work;
    grids.stopped = answer.stopped;
    grids.proven = grids.proven && answer.proven;
    if (!answer.best) continue;
    const double value = question.value(*answer.best);
    const auto place = std::find_if(grids.grids.begin(), grids.grids.end(), [&](const GridAnswer& grid) {
      return question.value(*grid.answer.best) > value;
    });
    grids.grids.insert(place, {shape.layout, shape.stages, std::move(answer)});
    if (grids.grids.size() > most) grids.grids.pop_back();
  }
  return grids;
}

}  // namespace stowage
