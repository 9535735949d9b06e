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
  std::int64_t number = 0;  // of the chunk in PipelineQuestion::times
  std::int64_t micro_batch = 0;
  bool backward = false;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw InvalidInput("pipeline: " + what);
}

void require_time(double seconds, const char* array, std::size_t number, const char* field) {
  if (std::isfinite(seconds) && seconds >= 0) return;
  throw InvalidInput(fmt::format("pipeline: {}[{}].{} is {}; give finite seconds, at least 0", array, number,
                                 field, seconds));
}

// Divides instead of multiplying: counts from outside may be too large for their product.
void check_counts(const PipelineQuestion& question) {
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
  const bool is_interleaved = question.schedule == PipelineSchedule::interleaved;
  require(
      question.virtual_stages == 1 || is_interleaved || question.schedule == PipelineSchedule::breadth_first,
      fmt::format("{} virtual stages belong to schedules with chunks; give 1, or such a schedule",
                  question.virtual_stages));
  const std::int64_t stages = static_cast<std::int64_t>(chunks) / question.virtual_stages;
  require(question.virtual_stages == 1 || !is_interleaved || question.micro_batches % stages == 0,
          fmt::format("{} stages do not divide {} micro-batches, which interleaving needs; give a multiple",
                      stages, question.micro_batches));
  require(question.micro_batches <= most_pipeline_events / 2 / static_cast<std::int64_t>(chunks),
          fmt::format("{} micro-batches in {} stages; at most {} events are simulated, give fewer",
                      question.micro_batches, chunks, most_pipeline_events));
}

void check_question(const PipelineQuestion& question) {
  check_counts(question);
  for (std::size_t i = 0; i < question.times.size(); ++i) {
    require_time(question.times[i].forward_seconds, "times", i, "forward_seconds");
    require_time(question.times[i].backward_seconds, "times", i, "backward_seconds");
  }
  for (std::size_t i = 0; i < question.links.size(); ++i) {
    require_time(question.links[i].latency_seconds, "links", i, "latency_seconds");
    require_time(question.links[i].busy_seconds, "links", i, "busy_seconds");
  }
}

// The order in which each stage works: some forwards ahead, then forwards and backwards by turns, then the
// backwards that are left.
class PipelineOrders {
 public:
  explicit PipelineOrders(const PipelineQuestion& question)
      : schedule_(question.schedule),
        virtual_stages_(question.virtual_stages),
        stages_(static_cast<std::int64_t>(question.times.size()) / virtual_stages_),
        micro_batches_(question.micro_batches),
        forwards_(question.micro_batches * virtual_stages_) {}

  std::int64_t stages() const { return stages_; }
  // Returns how many forwards, and as many backwards, a stage does.
  std::int64_t forwards() const { return forwards_; }

  // Returns what `stage` does as its `step`-th work, from 0. Requires step < 2 * forwards().
  PipelineWork work(std::int64_t stage, std::int64_t step) const {
    const std::int64_t ahead = forwards_ahead(stage);
    if (step < ahead) return pass(stage, step, false);
    const std::int64_t turn = step - ahead;
    if (turn >= 2 * (forwards_ - ahead)) return pass(stage, step - forwards_, true);
    return turn % 2 == 0 ? pass(stage, ahead + turn / 2, false) : pass(stage, turn / 2, true);
  }

 private:
  PipelineSchedule schedule_;
  std::int64_t virtual_stages_, stages_, micro_batches_, forwards_;

  std::int64_t forwards_ahead(std::int64_t stage) const {
    if (schedule_ == PipelineSchedule::gpipe) return forwards_;
    std::int64_t ahead = stages_ - 1 - stage;
    if (schedule_ == PipelineSchedule::breadth_first)
      return std::min(ahead, micro_batches_) + (virtual_stages_ - 1) * micro_batches_;
    if (virtual_stages_ > 1) ahead = 2 * ahead + (virtual_stages_ - 1) * stages_;
    return std::min(ahead, forwards_);
  }

  // Returns the forward (or backward) of this number. Interleaved stages take as many micro-batches through a
  // chunk as there are stages, then the next chunk's (backward: the chunk before); breadth-first ones take
  // all micro-batches; others know one chunk.
  PipelineWork pass(std::int64_t stage, std::int64_t number, bool backward) const {
    if (virtual_stages_ == 1) return {stage, number, backward};
    const std::int64_t in_turn = schedule_ == PipelineSchedule::breadth_first ? micro_batches_ : stages_;
    const std::int64_t round = in_turn * virtual_stages_;
    const std::int64_t turn = number % round / in_turn;
    const std::int64_t chunk = backward ? virtual_stages_ - 1 - turn : turn;
    return {chunk * stages_ + stage, number / round * in_turn + number % in_turn, backward};
  }
};

class PipelineSimulation {
 public:
  explicit PipelineSimulation(const PipelineQuestion& question)
      : question_(question),
        orders_(question),
        chunks_(static_cast<std::int64_t>(question.times.size())),
        stages_(static_cast<std::size_t>(orders_.stages())) {
    for (auto* arrivals : {&forward_, &backward_})
      arrivals->assign(static_cast<std::size_t>(chunks_ * question.micro_batches), not_yet);
    std::fill_n(forward_.begin(), question.micro_batches, 0.0);
    run_.busy_seconds.assign(stages_.size(), 0);
    run_.in_flight.assign(stages_.size(), 0);
    if (question.keep_events)
      run_.events.resize(stages_.size() * 2 * static_cast<std::size_t>(orders_.forwards()));
  }

  // Each stage works until it lacks something, and again when that has come. Each work wakes at most one
  // stage, so that the time is linear in the number of events.
  PipelineRun run() {
    for (std::int64_t stage = orders_.stages(); stage-- > 0;) wake(stage);
    while (!awake_.empty()) {
      const std::int64_t stage = awake_.back();
      awake_.pop_back();
      stages_[static_cast<std::size_t>(stage)].awake = false;
      go_on(stage);
    }
    return std::move(run_);
  }

 private:
  struct Stage {
    std::int64_t done = 0;  // works of its order
    std::int64_t in_flight = 0;
    double free = 0;                                // when it has done them
    double next_link_free = 0, back_link_free = 0;  // when all that it sent has left the link on, and back
    bool awake = false;
  };

  const PipelineQuestion& question_;
  PipelineOrders orders_;
  std::int64_t chunks_;
  std::vector<Stage> stages_;
  std::vector<double> forward_, backward_;  // when a chunk has what it needs for a micro-batch
  std::vector<std::int64_t> awake_;         // stages whose next work may have what it needs
  PipelineRun run_;

  double& arrival(const PipelineWork& work) {
    auto& arrivals = work.backward ? backward_ : forward_;
    return arrivals[static_cast<std::size_t>(work.number * question_.micro_batches + work.micro_batch)];
  }

  void wake(std::int64_t stage) {
    bool& awake = stages_[static_cast<std::size_t>(stage)].awake;
    if (!awake) awake_.push_back(stage);
    awake = true;
  }

  void go_on(std::int64_t stage) {
    Stage& self = stages_[static_cast<std::size_t>(stage)];
    while (self.done < 2 * orders_.forwards()) {
      const PipelineWork work = orders_.work(stage, self.done);
      if (arrival(work) == not_yet) return;
      send(work, stage, compute(work, stage));
      ++self.done;
    }
  }

  // Returns when the work ends.
  double compute(const PipelineWork& work, std::int64_t stage) {
    const std::size_t s = static_cast<std::size_t>(stage);
    Stage& self = stages_[s];
    const StageTimes& times = question_.times[static_cast<std::size_t>(work.number)];
    const double seconds = work.backward ? times.backward_seconds : times.forward_seconds;
    const double begin = std::max(self.free, arrival(work));
    self.free = begin + seconds;
    self.in_flight += work.backward ? -1 : 1;
    run_.in_flight[s] = std::max(run_.in_flight[s], self.in_flight);
    run_.busy_seconds[s] += seconds;
    run_.seconds = std::max(run_.seconds, self.free);
    if (question_.keep_events) {
      run_.events[static_cast<std::size_t>(stage * 2 * orders_.forwards() + self.done)] = {
          static_cast<int>(stage),
          static_cast<int>(work.number / orders_.stages()),
          work.micro_batch,
          work.backward,
          begin,
          self.free};
    }
    return self.free;
  }

  // Sends what the work made, and wakes the stage that reads it.
  void send(const PipelineWork& work, std::int64_t stage, double made) {
    PipelineWork reader = work;
    reader.number += work.backward ? -1 : 1;
    if (reader.number < 0) return;
    if (reader.number == chunks_) {  // the last chunk's backward reads its own forward
      arrival({work.number, work.micro_batch, true}) = made;
      return;
    }
    StageLink link;
    if (!question_.links.empty())
      link = question_.links[static_cast<std::size_t>(std::min(work.number, reader.number))];
    Stage& self = stages_[static_cast<std::size_t>(stage)];
    // With two stages the next one is also the one before.
    double& link_free = work.backward && orders_.stages() != 2 ? self.back_link_free : self.next_link_free;
    link_free = std::max(link_free, made) + link.busy_seconds;
    arrival(reader) = link_free + link.latency_seconds;
    wake(reader.number % orders_.stages());
  }
};

}  // namespace

PipelineRun simulate_pipeline(const PipelineQuestion& question) {
  check_question(question);
  PipelineRun run = PipelineSimulation(question).run();
  require(std::isfinite(run.seconds), "the times add up to more than a double holds; give smaller ones");
  return run;
}

}  // namespace stowage
