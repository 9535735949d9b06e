#include "tools/answer/parallel_schedules.h"

#include <fmt/format.h>

#include <algorithm>

#include "stowage/error.h"

namespace stowage {
namespace {

PipelineSchedule own_schedule(const ParallelCosts& costs) {
  return costs.order == PipelineOrder::gpipe ? PipelineSchedule::gpipe : PipelineSchedule::one_f_one_b;
}

bool has_too_many_events(const PipelineQuestion& question) {
  return question.micro_batches >
         most_simulated_events / 2 / static_cast<std::int64_t>(question.times.size());
}

// Bytes of each device.
struct StageBytes {
  Bytes throughout = 0, in_flight = 0;

  Bytes with(std::int64_t micro_batches) const {
    return saturated_sum(throughout, saturated_product(in_flight, micro_batches));
  }
};

std::vector<StageBytes> bytes_of_stages(const ParallelCosts& costs, const ParallelCandidate& candidate) {
  std::vector<StageBytes> all(candidate.stages.size());
  for (std::size_t s = 0; s < all.size(); ++s) {
    const std::vector<int>& variants = candidate.stages[s].variants;
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const ParallelLayer& layer =
          costs.layers[static_cast<std::size_t>(candidate.pipeline.stages[s].first) + i];
      const LayerVariant& variant = layer.variants[static_cast<std::size_t>(variants[i])];
      all[s].throughout = saturated_sum(all[s].throughout, variant.bytes);
      all[s].in_flight = saturated_sum(all[s].in_flight, variant.bytes_in_flight);
    }
  }
  return all;
}

class ScheduleTimer {
 public:
  ScheduleTimer(const ParallelCosts& costs, const ChunkSearch& search, ParallelCandidate& candidate)
      : costs_(costs), search_(search), candidate_(candidate) {}

  void time_all() {
    candidate_.schedules = {plain(PipelineSchedule::gpipe), plain(PipelineSchedule::one_f_one_b),
                            interleaved(2), interleaved(4)};
  }

 private:
  const ParallelCosts& costs_;
  const ChunkSearch& search_;
  ParallelCandidate& candidate_;

  ScheduledStep plain(PipelineSchedule schedule) {
    ScheduledStep step{schedule, 1, ScheduleOutcome::not_searched, 0};
    PipelineQuestion question = simulation_of(costs_, candidate_);
    question.schedule = schedule;
    if (has_too_many_events(question)) return step;
    const PipelineRun run = simulate_pipeline(question);
    if (schedule == own_schedule(costs_)) {  // the search has seen to its memory
      for (const double busy : run.busy_seconds)
        candidate_.bubbles.push_back(run.seconds > 0 ? 1 - busy / run.seconds : 0);
    } else if (!fits(run)) {
      step.outcome = ScheduleOutcome::no_memory;
      return step;
    }
    step.outcome = ScheduleOutcome::timed;
    step.seconds = run.seconds + candidate_.pipeline.tail;
    return step;
  }

  bool fits(const PipelineRun& run) const {
    const std::vector<StageBytes> bytes = bytes_of_stages(costs_, candidate_);
    for (std::size_t s = 0; s < bytes.size(); ++s) {
      if (bytes[s].with(run.in_flight[s]) > costs_.memory) return false;
    }
    return true;
  }

  ScheduledStep interleaved(int virtual_stages) {
    ScheduledStep step{PipelineSchedule::interleaved, virtual_stages, ScheduleOutcome::impossible, 0};
    const std::size_t stages = candidate_.stages.size();
    const std::size_t chunks = stages * static_cast<std::size_t>(virtual_stages);
    if (!candidate_.grid || stages == 1 || chunks > costs_.layers.size()) return step;
    if (costs_.micro_batches % static_cast<std::int64_t>(stages) != 0) return step;
    // Chunks that each fit alone may be faster than those that share the memory equally, and may fit
    // together.
    time_chunks(costs_.memory, step);
    if (step.outcome == ScheduleOutcome::no_memory)
      time_chunks(std::max<Bytes>(1, costs_.memory / static_cast<Bytes>(virtual_stages)), step);
    return step;
  }

  // `memory`: of each chunk.
  void time_chunks(Bytes memory, ScheduledStep& step) {
    step.outcome = ScheduleOutcome::not_searched;
    ParallelCosts costs = costs_;
    costs.memory = memory;
    costs.order = PipelineOrder::one_f_one_b;
    costs.in_flight = InFlight::stages;
    costs.objective = ParallelObjective::largest_stage;
    StageTable table(costs);
    SearchQuestion question = question_of(costs);
    question.layouts = {candidate_.pipeline.stages.front().layout};
    question.devices =
        static_cast<int>(candidate_.stages.size()) * step.virtual_stages * candidate_.grid->devices;
    question.use_all_devices = true;
    SearchAnswer found;
    try {
      found = search_(table, question);
    } catch (const InvalidInput&) {  // more cells than a search may have
      return;
    }
    if (found.best) {
      simulate_chunks(candidate_of(costs, table, *found.best), step);
    } else if (found.proven) {
      step.outcome = ScheduleOutcome::no_memory;
    }
  }

  void simulate_chunks(const ParallelCandidate& chunks, ScheduledStep& step) const {
    PipelineQuestion question = simulation_of(costs_, chunks);
    question.schedule = PipelineSchedule::interleaved;
    question.virtual_stages = step.virtual_stages;
    question.keep_events = true;
    if (has_too_many_events(question)) return;
    const PipelineRun run = simulate_pipeline(question);
    const std::vector<Bytes> peaks = peaks_of(chunks, run);
    const bool fits = *std::max_element(peaks.begin(), peaks.end()) <= costs_.memory;
    step.outcome = fits ? ScheduleOutcome::timed : ScheduleOutcome::no_memory;
    if (fits) step.seconds = run.seconds + exchange_of(chunks);
  }

  // Returns the most bytes of each stage.
  std::vector<Bytes> peaks_of(const ParallelCandidate& chunks, const PipelineRun& run) const {
    const std::size_t stages = candidate_.stages.size();
    const std::vector<StageBytes> bytes = bytes_of_stages(costs_, chunks);
    std::vector<std::int64_t> in_flight(bytes.size(), 0);
    std::vector<Bytes> peaks(stages, 0);
    for (const PipelineEvent& event : run.events) {
      const std::size_t stage = static_cast<std::size_t>(event.stage);
      in_flight[static_cast<std::size_t>(event.chunk) * stages + stage] += event.backward ? -1 : 1;
      if (event.backward) continue;
      Bytes now = 0;
      for (std::size_t chunk = stage; chunk < bytes.size(); chunk += stages)
        now = saturated_sum(now, bytes[chunk].with(in_flight[chunk]));
      peaks[stage] = std::max(peaks[stage], now);
    }
    return peaks;
  }

  double exchange_of(const ParallelCandidate& chunks) const {
    const std::size_t stages = candidate_.stages.size();
    std::vector<double> sums(stages, 0);
    for (std::size_t chunk = 0; chunk < chunks.stages.size(); ++chunk)
      sums[chunk % stages] += chunks.stages[chunk].exchange_seconds;
    return *std::max_element(sums.begin(), sums.end());
  }
};

}  // namespace

std::string_view to_string(ScheduleOutcome outcome) {
  switch (outcome) {
    case ScheduleOutcome::timed:
      return "timed";
    case ScheduleOutcome::impossible:
      return "impossible";
    case ScheduleOutcome::no_memory:
      return "no_memory";
    case ScheduleOutcome::not_searched:
      break;
  }
  return "not_searched";
}

std::string name_of(const ScheduledStep& step) {
  if (step.schedule == PipelineSchedule::gpipe) return "GPipe";
  if (step.schedule == PipelineSchedule::one_f_one_b) return "1F1B";
  return fmt::format("interleaved {}", step.virtual_stages);
}

ParallelCandidate candidate_of(const ParallelCosts& costs, StageTable& table, const Pipeline& pipeline) {
  ParallelCandidate candidate;
  candidate.pipeline = pipeline;
  candidate.value = question_of(costs).value(pipeline);
  candidate.step_seconds = pipeline.step_seconds(costs.micro_batches);
  candidate.stages = table.details(pipeline);
  for (const PlacedStage& stage : pipeline.stages)
    candidate.layouts.push_back(table.layouts()[static_cast<std::size_t>(stage.layout)]);
  const StageLayout& first = candidate.layouts.front();
  const bool alike = std::all_of(candidate.layouts.begin(), candidate.layouts.end(),
                                 [&](const StageLayout& each) { return each == first; });
  if (alike && !first.mixed) candidate.grid = first;
  return candidate;
}

PipelineQuestion simulation_of(const ParallelCosts& costs, const ParallelCandidate& candidate) {
  PipelineQuestion question;
  question.schedule = own_schedule(costs);
  question.micro_batches = costs.micro_batches;
  const bool within = costs.sending == Sending::within;
  for (std::size_t s = 0; s < candidate.stages.size(); ++s) {
    const StageDetail& stage = candidate.stages[s];
    const double sends = within ? (stage.front_send_seconds + stage.back_send_seconds) / 2 : 0;
    question.times.push_back({stage.forward_seconds + sends, stage.backward_seconds + sends});
    if (s == 0) continue;
    // The two stages of a cut may count its seconds differently.
    const double one_way =
        within ? 0 : (candidate.stages[s - 1].back_send_seconds + stage.front_send_seconds) / 4;
    const double latency = std::min(one_way, costs.link.latency_seconds);
    question.links.push_back({latency, one_way - latency});
  }
  return question;
}

void time_schedules(const ParallelCosts& costs, const ChunkSearch& search, ParallelCandidate& candidate) {
  ScheduleTimer(costs, search, candidate).time_all();
}

std::optional<FasterSchedule> fastest_by_simulation(const ParallelCosts& costs,
                                                    const ParallelAnswer& answer) {
  constexpr double rounding = 1e-9;  // relative
  const auto& own = answer.best().schedules;
  const auto here = std::find_if(own.begin(), own.end(), [&](const ScheduledStep& step) {
    return step.schedule == own_schedule(costs) && step.outcome == ScheduleOutcome::timed;
  });
  if (here == own.end()) return {};
  double least = here->seconds;
  std::optional<FasterSchedule> fastest;
  const auto look_at = [&](const ParallelCandidate& candidate) {
    for (const ScheduledStep& step : candidate.schedules) {
      if (step.outcome != ScheduleOutcome::timed || step.seconds >= least * (1 - rounding)) continue;
      least = step.seconds;
      fastest = FasterSchedule{&candidate, &step};
    }
  };
  for (const ParallelCandidate& grid : answer.grids) look_at(grid);
  if (answer.best_of_all) look_at(*answer.best_of_all);
  return fastest;
}

}  // namespace stowage
