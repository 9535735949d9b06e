#include "offload/plan/decisions/step_memory.h"

#include <algorithm>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"

namespace stowage {
namespace {

// Returns the live bytes at each position of a serial draft.
std::vector<double> live_bytes(const Draft& draft, const BucketLayout& layout) {
  std::vector<double> live(draft.sequence.size() + 1, 0);
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    live[static_cast<std::size_t>(lifetime.first)] +=
        static_cast<double>(layout.buckets[lifetime.bucket].bytes);
    live[static_cast<std::size_t>(lifetime.last)] -=
        static_cast<double>(layout.buckets[lifetime.bucket].bytes);
  }
  for (std::size_t p = 1; p < live.size(); ++p) live[p] += live[p - 1];
  return live;
}

// Returns, by bucket, whether a decision is about it.
std::vector<std::uint8_t> decided_buckets(const Problem& problem) {
  std::vector<std::uint8_t> decided(problem.layout.buckets.size(), 0);
  for (BucketId id = 0; id < decided.size(); ++id)
    decided[id] =
        highest_load(problem, id) != LoadChoice::each_op || problem.layout.parameters_of[id] != no_id;
  for (const ActivationItem& item : problem.items)
    for (BucketId bucket : item.buckets) decided[bucket] = 1;
  return decided;
}

// Calls `function` for each stage at whose peak the lifetime is live.
template <typename Function>
void for_live_stages(const StepMemory::Uniform& of, const DraftLifetime& lifetime, Function&& function) {
  const auto first = std::lower_bound(of.peaks.begin(), of.peaks.end(), lifetime.first);
  const auto last = std::lower_bound(first, of.peaks.end(), lifetime.last);
  for (auto peak = first; peak != last; ++peak) function(static_cast<std::uint32_t>(peak - of.peaks.begin()));
}

}  // namespace

StepMemory::StepMemory(const Problem& problem, const PlannerSettings& settings)
    : problem_(problem), settings_(settings) {}

void StepMemory::add(const Choices& choices) { uniforms_.push_back(lifetimes_of(choices)); }

Bytes StepMemory::serial_bytes(std::size_t uniform) const {
  return serial_peak_bytes(uniforms_[uniform].draft, problem_.layout);
}

StepMemory::Uniform StepMemory::lifetimes_of(const Choices& choices) const {
  Uniform of;
  of.draft = Sketcher(problem_, choices).serial().draft;
  of.stages = of.draft.stages(*problem_.graph);
  of.of_bucket.resize(problem_.layout.buckets.size());
  for (LifetimeId id = 0; id < of.draft.lifetimes.size(); ++id)
    of.of_bucket[of.draft.lifetimes[id].bucket].push_back(id);
  const std::vector<double> live = live_bytes(of.draft, problem_.layout);
  for (std::size_t p = 0; p < of.stages.size(); ++p) {
    if (of.stages[p] == of.peaks.size()) of.peaks.push_back(static_cast<Position>(p));
    if (live[p] > live[static_cast<std::size_t>(of.peaks.back())]) of.peaks.back() = static_cast<Position>(p);
  }
  return of;
}

// Splits the stages into equal runs, one for each row. A row counts the stages of its run that have about the
// most live bytes (PlannerSettings::alike_stages). Its base is the most bytes that no decision is about in
// any of these stages.
void StepMemory::find_rows() {
  const Uniform& lowest = uniforms_.front();
  stages_ = static_cast<std::uint32_t>(lowest.peaks.size());
  const std::size_t count = std::min<std::size_t>(settings_.memory_moments, stages_);
  const std::vector<double> live = live_bytes(lowest.draft, problem_.layout);
  const auto peak_of = [&](std::uint32_t stage) {
    return live[static_cast<std::size_t>(lowest.peaks[stage])];
  };
  row_of_.assign(stages_, no_id);
  stages_of_.assign(count, 0);
  for (std::uint32_t m = 0; m < count; ++m) {
    const auto begin = static_cast<std::uint32_t>(m * stages_ / count);
    const auto end = static_cast<std::uint32_t>((m + std::size_t{1}) * stages_ / count);
    double most = 0;
    for (std::uint32_t stage = begin; stage < end; ++stage) most = std::max(most, peak_of(stage));
    for (std::uint32_t stage = begin; stage < end; ++stage)
      if (peak_of(stage) >= settings_.alike_stages * most) {
        row_of_[stage] = m;
        ++stages_of_[m];
      }
  }
  const std::vector<std::uint8_t> decided = decided_buckets(problem_);
  std::vector<double> undecided(stages_, 0);
  base_.assign(count, 0);
  for (const DraftLifetime& lifetime : lowest.draft.lifetimes) {
    if (decided[lifetime.bucket]) continue;
    const auto bytes = static_cast<double>(problem_.layout.buckets[lifetime.bucket].bytes);
    for_live_stages(lowest, lifetime, [&](std::uint32_t stage) { undecided[stage] += bytes; });
  }
  for (std::uint32_t stage = 0; stage < stages_; ++stage)
    if (row_of_[stage] != no_id) base_[row_of_[stage]] = std::max(base_[row_of_[stage]], undecided[stage]);
}

std::uint32_t StepMemory::add_lifetime(const DraftLifetime& lifetime, const Uniform& of,
                                       ShareCost& cost) const {
  const auto bytes = static_cast<double>(problem_.layout.buckets[lifetime.bucket].bytes);
  std::uint32_t stages = 0;
  for_live_stages(of, lifetime, [&](std::uint32_t stage) {
    if (stage >= stages_) return;  // the stage is that of residents' updates
    ++stages;
    if (const std::uint32_t m = row_of_[stage]; m != no_id) cost.memory[m] += bytes / stages_of_[m];
  });
  return stages;
}

}  // namespace stowage
