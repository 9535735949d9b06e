// How often, and by how much, simpler searches lose against the exact one, on random chains of layers.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "offload/parallel/stage_table.h"
#include "tests/support/parallel_chains.h"

namespace {

using namespace stowage;

constexpr int chains = 2000;
constexpr double equal = 1e-9;  // relative

struct Losses {
  int judged = 0, none = 0;    // chains that have a pipeline; of them those for which the search has none
  std::vector<double> ratios;  // of those that it finds slower

  void take(const std::optional<Pipeline>& found, const SearchQuestion& question, double best) {
    ++judged;
    if (!found) {
      ++none;
    } else if (const double value = found->step_seconds(question.micro_batches); value > best * (1 + equal)) {
      ratios.push_back(value / best);
    }
  }
  void print(const char* name) {
    std::sort(ratios.begin(), ratios.end());
    const double median = ratios.empty() ? 1 : ratios[ratios.size() / 2];
    const double most = ratios.empty() ? 1 : ratios.back();
    fmt::print("| {} | {} | {} | {:.3f} | {:.2f} | {} |\n", name, judged, ratios.size(), median, most, none);
  }
};

}  // namespace

int main() {
  std::mt19937_64 random(20261129);
  Losses exact, grid, printed, indexed, largest;
  for (int chain = 0; chain < chains; ++chain) {
    const ParallelCosts costs = testing::random_chain(random);
    const auto tried = testing::best_by_trying(costs, false);
    if (!tried) continue;
    StageTable table(costs);
    SearchQuestion question = question_of(costs);
    exact.take(search_pipeline(table, question).best, question, tried->value);
    const GridsAnswer grids = search_grids(table, question);
    grid.take(grids.grids.empty() ? std::nullopt : grids.grids.front().answer.best, question, tried->value);
    indexed.take(search_as_printed(table, question).best, question, tried->value);
    question.objective = ParallelObjective::largest_stage;
    largest.take(search_pipeline(table, question).best, question, tried->value);
    question.objective = ParallelObjective::step;
    ParallelCosts all_in_flight = costs;
    all_in_flight.order = PipelineOrder::gpipe;
    StageTable as_printed(all_in_flight);
    printed.take(search_as_printed(as_printed, question).best, question, tried->value);
  }
  fmt::print(
      "| search | chains with a pipeline | slower | median of those | most | finds none "
      "|\n|---|---|---|---|---|---|\n");
  exact.print("exact");
  grid.print("best grid");
  indexed.print("as printed, with the index");
  printed.print("as printed");
  largest.print("least largest stage");
}
