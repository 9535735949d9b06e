// A simulation of stage times: when each stage computes each micro-batch, under the orders that trainers use.
#pragma once

#include <cstdint>
#include <vector>

namespace stowage {

// One stage, or with virtual stages one of its chunks, for one micro-batch.
struct StageTimes {
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// The way from one stage (or chunk) to the next one, in both directions. All that one stage sends to another
// goes over one link, from whichever chunk to whichever.
struct StageLink {
  // Between the end of a stage's work and the next one's beginning, for any number of sends at once.
  double latency_seconds = 0;
  // More of it, for which the link carries nothing else in that direction. Sends wait in the order in which
  // they were made.
  double busy_seconds = 0;
};

enum class PipelineSchedule : std::uint8_t {
  gpipe,        // all forwards, then all backwards (Huang et al., GPipe, NeurIPS 2019)
  one_f_one_b,  // as few micro-batches in flight as can be (Narayanan et al., PipeDream-Flush, ICML 2021)
  // The same with several chunks for each stage (Narayanan et al., SC 2021, section 2.2). With one chunk it
  // is `one_f_one_b`.
  interleaved,
  // Each chunk but the last takes all micro-batches forward, one chunk after another; the last chunk is as in
  // 1F1B; then each takes all of them backward (Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023,
  // but for the last chunk). With one chunk it is `one_f_one_b`.
  breadth_first,
};

// One forward or backward of a micro-batch, with its time.
struct PipelineEvent {
  int stage = 0;
  int chunk = 0;  // of the stage, from 0
  std::int64_t micro_batch = 0;
  bool backward = false;
  double begin_seconds = 0, end_seconds = 0;
};

struct PipelineRun {
  double seconds = 0;                // from the first forward to the last backward
  std::vector<double> busy_seconds;  // for each stage
  // For each stage, the most chunks of micro-batches whose forward has begun and whose backward has not
  // ended.
  std::vector<std::int64_t> in_flight;
  std::vector<PipelineEvent> events;  // by stage, each in its order; empty unless asked for
};

struct PipelineQuestion {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int virtual_stages = 1;  // chunks for each stage; above 1 for `interleaved` and `breadth_first` alone
  std::int64_t micro_batches = 1;
  // Stages in the order of the layers, stages * virtual_stages of them: number i is chunk i / stages of stage
  // i % stages.
  std::vector<StageTimes> times{};
  std::vector<StageLink> links{};  // between neighbours of `times`, one fewer; empty: no time passes
  bool keep_events = false;
};

// Throws InvalidInput for counts that are not positive, for sizes that do not match, for times that are
// negative, not finite or too large to be added, for `interleaved` if the stages do not divide the
// micro-batches, and for more than most_pipeline_events events. Takes time linear in the number of events.
PipelineRun simulate_pipeline(const PipelineQuestion& question);

inline constexpr std::int64_t most_pipeline_events = std::int64_t{1} << 24;

}  // namespace stowage
