#include "tools/answer/parallel_answer.h"

#include <algorithm>

#include "tools/answer/parallel_schedules.h"

namespace stowage {
namespace {

constexpr std::size_t most_grids = 6;

class ParallelSearches {
 public:
  ParallelSearches(const ParallelCosts& costs, const ParallelLimits& limits)
      : costs_(costs), limits_(limits), table_(costs), question_(question_of(costs)) {}

  ParallelAnswer answer() {
    search_the_grids();
    search_all();
    if (answer_.grids.empty() && answer_.grids_proven) answer_.least_grid = least_memory(costs_, true);
    if (!answer_.feasible() && answer_.proven) answer_.least = least_memory(costs_, false);
    const ChunkSearch search = [this](StageTable& table, const SearchQuestion& question) {
      return beside(search_pipeline(table, limited(question)));
    };
    for (ParallelCandidate& each : answer_.grids) time_schedules(costs_, search, each);
    if (answer_.best_of_all) time_schedules(costs_, search, *answer_.best_of_all);
    if (answer_.feasible() && !answer_.stopped) add_simpler_searches();
    return std::move(answer_);
  }

 private:
  const ParallelCosts& costs_;
  const ParallelLimits& limits_;
  StageTable table_;
  SearchQuestion question_;
  ParallelAnswer answer_;

  // Returns the question with what is left of the limit.
  SearchQuestion limited(SearchQuestion question) const {
    const std::uint64_t before = answer_.work + answer_.work_beside;
    question.most_work = limits_.most_work - std::min(limits_.most_work, before);
    if (answer_.stopped) question.most_work = 0;
    question.keep_going = [this, before](std::uint64_t work) { return limits_.keep_going(before + work); };
    return question;
  }

  void search_the_grids() {
    const GridsAnswer found = search_grids(table_, limited(question_), most_grids);
    answer_.work += found.work;
    answer_.grids_proven = found.proven;
    answer_.stopped = found.stopped;
    for (const GridAnswer& grid : found.grids)
      answer_.grids.push_back(candidate_of(costs_, table_, *grid.answer.best));
  }

  void search_all() {
    const SearchAnswer found = search_pipeline(table_, limited(question_));
    answer_.work += found.work;
    answer_.proven = found.proven;
    answer_.stopped = answer_.stopped || found.stopped;
    answer_.bound = found.bound;
    if (found.best && (answer_.grids.empty() || question_.value(*found.best) < best_value_by_rounding()))
      take(candidate_of(costs_, table_, *found.best));
    if (!answer_.grids.empty()) answer_.bound = std::min(answer_.bound, answer_.grids.front().value);
  }

  // Sums that differ by rounding alone are one value.
  double best_value_by_rounding() const { return answer_.grids.front().value * (1 - 1e-12); }

  // A search over grids that ended early may have missed the best one.
  void take(ParallelCandidate best) {
    if (!best.grid) {
      answer_.best_of_all = std::move(best);
      return;
    }
    answer_.grids_proven = answer_.proven;
    answer_.grids.insert(answer_.grids.begin(), std::move(best));
    if (answer_.grids.size() > most_grids) answer_.grids.pop_back();
  }

  SearchAnswer beside(SearchAnswer found) {
    answer_.work_beside += found.work;
    answer_.stopped = answer_.stopped || found.stopped;
    return found;
  }

  void add_simpler(const char* name, const SearchQuestion& question, const SearchAnswer& found) {
    SimplerSearch simpler{name, {}, found.stopped || found.work > question.most_work};
    if (found.best) simpler.step_seconds = found.best->step_seconds(costs_.micro_batches);
    answer_.simpler.push_back(std::move(simpler));
  }

  void add_simpler_searches() {
    ParallelCosts all_in_flight = costs_;
    all_in_flight.order = PipelineOrder::gpipe;
    StageTable printed(all_in_flight);
    SearchQuestion step = question_;
    step.objective = ParallelObjective::step;
    step = limited(step);
    add_simpler("as printed", step, beside(search_as_printed(printed, step)));
    step = limited(step);
    add_simpler("as printed, with the stages behind", step, beside(search_as_printed(table_, step)));
    SearchQuestion largest = question_;
    largest.objective = ParallelObjective::largest_stage;
    largest = limited(largest);
    add_simpler("least largest stage", largest, beside(search_pipeline(table_, largest)));
  }
};

}  // namespace

ParallelAnswer answer(const ParallelCosts& costs, const ParallelLimits& limits) {
  return ParallelSearches(costs, limits).answer();
}

}  // namespace stowage
