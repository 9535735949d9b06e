#include "offload/parallel/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr double not_yet = -1;  // the time of what has not happened

// One forward or backward of a micro-batch in one chunk.
struct PipelineWork {
  std::int32_t number = 0;  // of StageTimes
  bool backward = false;
  std::int64_t micro_batch = 0;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw InvalidInput("pipeline: " + what);
}

void check_question(const PipelineQuestion& question) {
  require(question.micro_batches >= 1 && question.virtual_stages >= 1,
          fmt::format("{} micro-batches and {} virtual stages; give at least 1 of each",
                      question.micro_batches, question.virtual_stages));
  const std::size_t chunks = question.times.size();
  require(chunks >= 1 && chunks <= static_cast<std::size_t>(most_pipeline_events) &&
              chunks % static_cast<std::size_t>(question.virtual_stages) == 0,
          fmt::format("{} times for {} virtual stages of each stage; give a multiple", chunks,
                      question.virtual_stages));
  require(question.links.empty() || question.links.size() + 1 == chunks,
          fmt::format("{} links between {} stages; give one fewer, or none", question.links.size(), chunks));
  require(question.virtual_stages == 1 || question.schedule == PipelineSchedule::interleaved,
          "virtual stages belong to the interleaved schedule");
  const std::int64_t stages = static_cast<std::int64_t>(chunks) / question.virtual_stages;
  require(question.virtual_stages == 1 || question.micro_batches % stages == 0,
          fmt::format("{} stages do not divide {} micro-batches, which interleaving needs", stages,
                      question.micro_batches));
  require(question.micro_batches <= most_pipeline_events / 2 / static_cast<std::int64_t>(chunks),
          fmt::format("{} micro-batches in {} stages; at most {} events are simulated",
                      question.micro_batches, chunks, most_pipeline_events));
  const auto time = [](double seconds) { return std::isfinite(seconds) && seconds >= 0; };
  for (const StageTimes& each : question.times)
    require(time(each.forward_seconds) && time(each.backward_seconds),
            "a stage's time is no time; give seconds from 0");
  for (const StageLink& each : question.links)
    require(time(each.latency_seconds) && time(each.busy_seconds),
            "a link's time is no time; give seconds from 0");
}

// What a stage does, in its order.
std::vector<PipelineWork> order_of(const PipelineQuestion& question, std::int64_t stage,
                                   std::int64_t stages) {
  const std::int64_t chunks = question.virtual_stages, all = question.micro_batches * chunks;
  // The forwards take as many micro-batches a chunk as there are stages; the backwards the same, last chunk
  // first.
  const auto work = [&](std::int64_t step, bool backward) {
    const std::int64_t within = chunks == 1 ? 0 : step % (stages * chunks);
    const std::int64_t chunk = within / stages;
    const std::int64_t micro_batch = chunks == 1 ? step : step / (stages * chunks) * stages + within % stages;
    return PipelineWork{static_cast<std::int32_t>((backward ? chunks - 1 - chunk : chunk) * stages + stage),
                        backward, micro_batch};
  };
  std::int64_t ahead = stages - 1 - stage;
  if (chunks > 1) ahead = 2 * ahead + (chunks - 1) * stages;
  if (question.schedule == PipelineSchedule::gpipe) ahead = all;
  ahead = std::min(ahead, all);
  std::vector<PipelineWork> order;
  order.reserve(static_cast<std::size_t>(2 * all));
  for (std::int64_t step = 0; step < ahead; ++step) order.push_back(work(step, false));
  for (std::int64_t step = 0; step < all; ++step) {
    if (ahead + step < all) order.push_back(work(ahead + step, false));
    order.push_back(work(step, true));
  }
  return order;
}

class PipelineSimulation {
 public:
  explicit PipelineSimulation(const PipelineQuestion& question)
      : question_(question),
        chunks_(static_cast<std::int64_t>(question.times.size())),
        stages_(chunks_ / question.virtual_stages),
        free_(static_cast<std::size_t>(stages_), 0),
        next_(static_cast<std::size_t>(stages_), 0) {
    for (auto* arrivals : {&forward_, &backward_})
      arrivals->assign(static_cast<std::size_t>(chunks_ * question.micro_batches), not_yet);
    std::fill_n(forward_.begin(), question.micro_batches, 0.0);
    for (auto* free : {&forward_link_free_, &backward_link_free_})
      free->assign(static_cast<std::size_t>(stages_), 0);
    run_.busy_seconds.assign(static_cast<std::size_t>(stages_), 0);
    run_.in_flight.assign(static_cast<std::size_t>(stages_), 0);
  }

  PipelineRun run() {
    for (std::int64_t stage = 0; stage < stages_; ++stage)
      orders_.push_back(order_of(question_, stage, stages_));
    std::vector<std::int64_t> flying(static_cast<std::size_t>(stages_), 0);
    std::vector<std::int64_t> ready;  // stages whose next work may have what it needs
    for (std::int64_t stage = stages_; stage-- > 0;) ready.push_back(stage);
    events_.resize(question_.keep_events ? static_cast<std::size_t>(stages_) : 0);
    while (!ready.empty()) {
      const std::int64_t stage = ready.back();
      ready.pop_back();
      std::size_t& next = next_[static_cast<std::size_t>(stage)];
      const std::vector<PipelineWork>& order = orders_[static_cast<std::size_t>(stage)];
      while (next < order.size() && arrival(order[next]) != not_yet) {
        const PipelineWork& work = order[next++];
        count(work, stage, flying);
        if (const std::int64_t other = finish(work, stage); other >= 0) ready.push_back(other);
      }
    }
    for (std::vector<PipelineEvent>& events : events_)
      run_.events.insert(run_.events.end(), events.begin(), events.end());
    return std::move(run_);
  }

 private:
  const PipelineQuestion& question_;
  std::int64_t chunks_, stages_;
  std::vector<std::vector<PipelineWork>> orders_;
  // When a chunk has what it needs for a micro-batch.
  std::vector<double> forward_, backward_;
  std::vector<double> free_;  // when each stage has done its work so far
  std::vector<double> forward_link_free_,
      backward_link_free_;         // when the link from each stage on, or back, is free
  std::vector<std::size_t> next_;  // of each stage's order
  std::vector<std::vector<PipelineEvent>> events_;
  PipelineRun run_;

  double& arrival(const PipelineWork& work) {
    auto& arrivals = work.backward ? backward_ : forward_;
    return arrivals[static_cast<std::size_t>(work.number * question_.micro_batches + work.micro_batch)];
  }

  void count(const PipelineWork& work, std::int64_t stage, std::vector<std::int64_t>& flying) {
    std::int64_t& here = flying[static_cast<std::size_t>(stage)];
    here += work.backward ? -1 : 1;
    std::int64_t& most = run_.in_flight[static_cast<std::size_t>(stage)];
    most = std::max(most, here);
  }

  // Does the work and sends what it made. Returns the stage that may go on with it; -1: none.
  std::int64_t finish(const PipelineWork& work, std::int64_t stage) {
    const std::size_t s = static_cast<std::size_t>(stage);
    const StageTimes& times = question_.times[static_cast<std::size_t>(work.number)];
    const double seconds = work.backward ? times.backward_seconds : times.forward_seconds;
    const double begin = std::max(free_[s], arrival(work));
    const double end = begin + seconds;
    free_[s] = end;
    run_.busy_seconds[s] += seconds;
    run_.seconds = std::max(run_.seconds, end);
    if (question_.keep_events)
      events_[s].push_back({static_cast<int>(stage), static_cast<int>(work.number / stages_),
                            work.micro_batch, work.backward, begin, end});
    PipelineWork reader = work;
    reader.number += work.backward ? -1 : 1;
    if (reader.number < 0) return -1;
    if (reader.number == chunks_) {  // the last chunk's backward reads its own forward
      reader = {work.number, true, work.micro_batch};
      arrival(reader) = end;
      return -1;
    }
    const StageLink link =
        question_.links.empty()
            ? StageLink{}
            : question_.links[static_cast<std::size_t>(std::min(work.number, reader.number))];
    double& link_free = (work.backward ? backward_link_free_ : forward_link_free_)[s];
    link_free = std::max(link_free, end) + link.busy_seconds;
    arrival(reader) = link_free + link.latency_seconds;
    return reader.number % stages_;
  }
};

}  // namespace

PipelineRun simulate_pipeline(const PipelineQuestion& question) {
  check_question(question);
  return PipelineSimulation(question).run();
}

}  // namespace stowage
