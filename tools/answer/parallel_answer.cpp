#include "tools/answer/parallel_answer.h"

#include <algorithm>

#include "tools/console/text.h"

namespace stowage {
namespace {

constexpr std::size_t finalists = 6;
// Events of one simulation; there are some twenty of them.
constexpr std::int64_t most_simulated_events = std::int64_t{1} << 21;

std::optional<double> simulated_seconds(PipelineQuestion question, PipelineSchedule schedule, double tail) {
  question.schedule = schedule;
  const std::int64_t chunks = static_cast<std::int64_t>(question.times.size());
  if (question.micro_batches > most_simulated_events / 2 / chunks) return {};
  return simulate_pipeline(question).seconds + tail;
}

class ParallelSearches {
 public:
  ParallelSearches(const ParallelCosts& costs, const ParallelLimits& limits)
      : costs_(costs), limits_(limits), table_(costs), question_(question_of(costs)) {}

  ParallelAnswer answer() {
    const GridsAnswer grids = search_grids(table_, limited(question_), finalists);
    take(grids.work, grids.proven, grids.stopped);
    for (const GridAnswer& grid : grids.grids) answer_.grids.push_back(candidate(table_, *grid.answer.best));
    const SearchAnswer all = search_pipeline(table_, limited(question_));
    take(all.work, all.proven, all.stopped);
    answer_.bound = all.bound;
    if (all.best && (answer_.grids.empty() || question_.value(*all.best) < least_worth_a_line())) {
      answer_.best_of_all = candidate(table_, *all.best);
    }
    if (!answer_.grids.empty()) answer_.bound = std::min(answer_.bound, answer_.grids.front().value);
    if (answer_.grids.empty() && answer_.proven) answer_.least_grid = least_memory(costs_, true);
    if (!answer_.feasible() && answer_.proven) answer_.least = least_memory(costs_, false);
    for (ParallelCandidate& each : answer_.grids) simulate(each);
    if (answer_.best_of_all) simulate(*answer_.best_of_all);
    if (answer_.feasible() && !answer_.stopped) add_simpler_searches();
    return std::move(answer_);
  }

 private:
  const ParallelCosts& costs_;
  const ParallelLimits& limits_;
  StageTable table_;
  SearchQuestion question_;
  ParallelAnswer answer_;

  // Sums that differ by rounding alone are one value.
  double least_worth_a_line() const { return answer_.grids.front().value * (1 - 1e-12); }

  SearchQuestion limited(SearchQuestion question) const {
    question.most_work = limits_.most_work - std::min(limits_.most_work, answer_.work);
    question.keep_going = [this, before = answer_.work](std::uint64_t work) {
      return limits_.keep_going(before + work);
    };
    return question;
  }
  void take(std::uint64_t work, bool proven, bool stopped) {
    answer_.work += work;
    answer_.proven = answer_.proven && proven;
    answer_.stopped = answer_.stopped || stopped;
  }

  ParallelCandidate candidate(StageTable& table, const Pipeline& pipeline) {
    ParallelCandidate candidate;
    candidate.pipeline = pipeline;
    candidate.value = question_.value(pipeline);
    candidate.step_seconds = pipeline.step_seconds(costs_.micro_batches);
    candidate.stages = table.details(pipeline);
    for (const PlacedStage& stage : pipeline.stages)
      candidate.layouts.push_back(table.layouts()[static_cast<std::size_t>(stage.layout)]);
    const StageLayout& first = candidate.layouts.front();
    const bool alike = std::all_of(candidate.layouts.begin(), candidate.layouts.end(),
                                   [&](const StageLayout& each) { return each == first; });
    if (alike && !first.mixed) candidate.grid = first;
    return candidate;
  }

  // Returns whether every stage has room for all micro-batches at once, as GPipe has them in flight.
  bool fits_gpipe(const ParallelCandidate& candidate) const {
    if (costs_.memory == unlimited) return true;
    for (std::size_t s = 0; s < candidate.stages.size(); ++s) {
      const PlacedStage& stage = candidate.pipeline.stages[s];
      const StageDetail& detail = candidate.stages[s];
      double bytes = static_cast<double>(detail.bytes);
      for (int layer = stage.first; layer < stage.last; ++layer) {
        const int variant = detail.variants[static_cast<std::size_t>(layer - stage.first)];
        const LayerVariant& of =
            costs_.layers[static_cast<std::size_t>(layer)].variants[static_cast<std::size_t>(variant)];
        bytes += static_cast<double>(of.bytes_in_flight) *
                 static_cast<double>(costs_.micro_batches - detail.in_flight);
      }
      if (bytes > static_cast<double>(costs_.memory)) return false;
    }
    return true;
  }

  void simulate(ParallelCandidate& candidate) {
    const PipelineQuestion question = simulation_of(costs_, candidate);
    const double tail = candidate.pipeline.tail;
    if (fits_gpipe(candidate))
      candidate.simulated.gpipe = simulated_seconds(question, PipelineSchedule::gpipe, tail);
    candidate.simulated.one_f_one_b = simulated_seconds(question, PipelineSchedule::one_f_one_b, tail);
    if (candidate.simulated.one_f_one_b) {
      const PipelineRun run = simulate_pipeline(question);
      for (const double busy : run.busy_seconds)
        candidate.bubbles.push_back(run.seconds > 0 ? 1 - busy / run.seconds : 0);
    }
    if (!candidate.grid || answer_.stopped) return;
    candidate.simulated.interleaved_2 = interleaved(candidate, 2);
    candidate.simulated.interleaved_4 = interleaved(candidate, 4);
  }

  // Each chunk has its part of the memory, and as many micro-batches in flight as a stage of so many chunks:
  // more than it will have.
  std::optional<double> interleaved(const ParallelCandidate& candidate, int virtual_stages) {
    const int stages = static_cast<int>(candidate.pipeline.stages.size());
    const int chunks = stages * virtual_stages;
    if (stages == 1 || chunks > table_.layers() || costs_.micro_batches % stages != 0) return {};
    if (costs_.micro_batches > most_simulated_events / 2 / chunks) return {};
    if (chunks * candidate.grid->devices > most_parallel_devices) return {};
    ParallelCosts costs = costs_;
    if (costs.memory != unlimited)
      costs.memory = std::max<Bytes>(1, costs.memory / static_cast<Bytes>(virtual_stages));
    StageTable table(costs);
    SearchQuestion question = limited(question_of(costs));
    question.objective = ParallelObjective::largest_stage;
    question.layouts = {candidate.pipeline.stages.front().layout};
    question.devices = chunks * candidate.grid->devices;
    question.use_all_devices = true;
    const SearchAnswer found = search_pipeline(table, question);
    answer_.work += found.work;
    answer_.stopped = answer_.stopped || found.stopped;
    if (!found.best) return {};
    PipelineQuestion simulation = simulation_of(costs, this->candidate(table, *found.best));
    simulation.virtual_stages = virtual_stages;
    return simulated_seconds(simulation, PipelineSchedule::interleaved, found.best->tail);
  }

  void add_simpler_searches() {
    // A search that ended early says nothing of what it would find.
    const auto add = [&](const char* name, const SearchQuestion& question, const SearchAnswer& found) {
      answer_.work += found.work;
      answer_.stopped = answer_.stopped || found.stopped;
      if (found.stopped || found.work > question.most_work) return;
      std::optional<double> seconds;
      if (found.best) seconds = found.best->step_seconds(costs_.micro_batches);
      answer_.simpler.push_back({name, seconds});
    };
    ParallelCosts all_in_flight = costs_;
    all_in_flight.order = PipelineOrder::gpipe;
    StageTable printed(all_in_flight);
    SearchQuestion step = limited(question_);
    step.objective = ParallelObjective::step;
    add("as printed", step, search_as_printed(printed, step));
    add("as printed, with the stages behind", step, search_as_printed(table_, step));
    SearchQuestion largest = limited(question_);
    largest.objective = ParallelObjective::largest_stage;
    add("least largest stage", largest, search_pipeline(table_, largest));
  }
};

}  // namespace

ParallelAnswer answer(const ParallelCosts& costs, const ParallelLimits& limits) {
  return ParallelSearches(costs, limits).answer();
}

PipelineQuestion simulation_of(const ParallelCosts& costs, const ParallelCandidate& candidate) {
  PipelineQuestion question;
  question.schedule =
      costs.order == PipelineOrder::gpipe ? PipelineSchedule::gpipe : PipelineSchedule::one_f_one_b;
  question.micro_batches = costs.micro_batches;
  const bool within = costs.sending == Sending::within;
  for (std::size_t s = 0; s < candidate.stages.size(); ++s) {
    const StageDetail& stage = candidate.stages[s];
    const double sends = within ? (stage.front_send_seconds + stage.back_send_seconds) / 2 : 0;
    question.times.push_back({stage.forward_seconds + sends, stage.backward_seconds + sends});
    if (s == 0) continue;
    // Half of a cut's seconds are one direction's; its two stages may count them differently.
    const double one_way =
        within ? 0 : (candidate.stages[s - 1].back_send_seconds + stage.front_send_seconds) / 4;
    const double latency = std::min(one_way, costs.link.latency_seconds);
    question.links.push_back({latency, one_way - latency});
  }
  return question;
}

std::string refusal(const ParallelCosts& costs, const ParallelAnswer& answer) {
  if (answer.stopped) return "the search was stopped before it found a pipeline";
  if (!answer.proven) return "the search ended before it found a pipeline; give it a higher --limit";
  if (!answer.least) {
    return fmt::format(
        "no pipeline {} {} devices: its layers have no variants for them; give variants for fewer devices",
        costs.use_all_devices ? "uses all" : "runs on", costs.devices);
  }
  const LeastMemory& least = *answer.least;
  return fmt::format(
      "no pipeline fits in {} of each device; the least that would do is {}, which layers {} to {} need "
      "on {} devices",
      format_bytes(costs.memory), exact(least.bytes),
      costs.layers[static_cast<std::size_t>(least.first)].name,
      costs.layers[static_cast<std::size_t>(least.last - 1)].name, least.layout.devices);
}

}  // namespace stowage
