// How often, and by how much, simpler searches lose against the exact one, on random chains of layers; how
// far 1F1B is from its formula; and what the exact search takes for 96 layers on 64 devices.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "offload/parallel/pipeline.h"
#include "offload/parallel/stage_table.h"
#include "tests/support/parallel_chains.h"

namespace {

using namespace stowage;

constexpr int chains = 2000;
constexpr double equal = 1e-9;  // relative

struct Losses {
  int too_good = 0;            // chains for which it claims less than any pipeline takes: a fault
  int judged = 0, none = 0;    // chains that have a pipeline; of them those for which the search has none
  std::vector<double> ratios;  // of those that it finds slower

  void take(const std::optional<Pipeline>& found, const SearchQuestion& question, double best) {
    ++judged;
    if (!found) {
      ++none;
    } else if (const double value = found->step_seconds(question.micro_batches); value > best * (1 + equal)) {
      ratios.push_back(value / best);
    } else {
      too_good += value < best * (1 - equal);
    }
  }
  void print(const char* name) {
    std::sort(ratios.begin(), ratios.end());
    const double median = ratios.empty() ? 1 : ratios[ratios.size() / 2];
    const double most = ratios.empty() ? 1 : ratios.back();
    fmt::print("| {} | {} | {} | {:.3f} | {:.2f} | {} |\n", name, judged, ratios.size(), median, most, none);
  }
};

double simulated_ratio(const ParallelCosts& costs, StageTable& table, const Pipeline& pipeline) {
  PipelineQuestion simulation;
  simulation.micro_batches = costs.micro_batches;
  const std::vector<StageDetail> stages = table.details(pipeline);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double sends =
        costs.sending == Sending::within ? stages[s].front_send_seconds + stages[s].back_send_seconds : 0;
    simulation.times.push_back(
        {stages[s].forward_seconds + sends / 2, stages[s].backward_seconds + sends / 2});
    if (s > 0)
      simulation.links.push_back({costs.sending == Sending::within
                                      ? 0
                                      : (stages[s - 1].back_send_seconds + stages[s].front_send_seconds) / 4,
                                  0});
  }
  return simulate_pipeline(simulation).seconds / (pipeline.step_seconds(costs.micro_batches) - pipeline.tail);
}

// Returns whether no search claims less than the best pipeline takes.
bool print_losses() {
  std::mt19937_64 random(20261129);
  Losses exact, grid, printed, indexed, largest;
  std::vector<double> ratios;  // 1F1B by simulation, of the formula
  for (int chain = 0; chain < chains; ++chain) {
    const ParallelCosts costs = testing::random_chain(random);
    const auto tried = testing::best_by_trying(costs, false);
    if (!tried) continue;
    StageTable table(costs);
    SearchQuestion question = question_of(costs);
    const SearchAnswer found = search_pipeline(table, question);
    exact.take(found.best, question, tried->value);
    if (found.best) ratios.push_back(simulated_ratio(costs, table, *found.best));
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
  std::sort(ratios.begin(), ratios.end());
  fmt::print(
      "\n1F1B by simulation over way + (M - 1) pace, of the best pipelines: {:.3f} to {:.3f}, median "
      "{:.3f}\n\n",
      ratios.front(), ratios.back(), ratios[ratios.size() / 2]);
  const int faults = exact.too_good + grid.too_good + printed.too_good + indexed.too_good + largest.too_good;
  if (faults > 0) fmt::print("{} claims are below what any pipeline takes\n", faults);
  return faults == 0;
}

// A search under its own clock.
void print_large(const char* name, const ParallelCosts& costs, bool bounds) {
  StageTable table(costs);
  SearchQuestion question = question_of(costs);
  question.techniques.bounds = bounds;
  if (!bounds) question.most_work = std::uint64_t{1} << 28U;
  const auto begin = std::chrono::steady_clock::now();
  const SearchAnswer found = search_pipeline(table, question);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("| {} | {} | {} | {:.1f} | {:.2e} | {} |\n", name, table.layouts().size(),
             bounds ? "with" : "without", seconds, static_cast<double>(found.work),
             !found.proven ? "no"
             : found.best  ? "yes"
                           : "yes: none fits");
  std::fflush(stdout);
}

void print_largest() {
  fmt::print(
      "| 96 layers on 64 devices | layouts | bounds | seconds | combinations | proven "
      "|\n|---|---|---|---|---|---|\n");
  for (const std::uint64_t seed : {0, 2, 6, 7}) {
    std::mt19937_64 random(seed);
    const ParallelCosts costs = testing::random_chain(random, {96, 96, 64, 64, 64});
    const std::string name =
        fmt::format("random chain {}{}", seed, costs.memory == unlimited ? "" : ", memory limited");
    print_large(name.c_str(), costs, true);
    print_large(name.c_str(), costs, false);
  }
}

}  // namespace

int main() {
  if (!print_losses()) return 1;
  print_largest();
}
