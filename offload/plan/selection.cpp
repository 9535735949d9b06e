#include "offload/plan/selection.h"

#include <algorithm>
#include <cmath>

namespace stowage {
namespace {

// Of a simulation.
constexpr double rounding = 1e-9;
// Of schedules so alike in time, of which one has so much less of the bytes, that is as good as any.
constexpr double as_fast = 1e-6;
constexpr Bytes as_small = 500;

bool as_fast_as(double a, double b) { return std::abs(a - b) <= as_fast * b; }

}  // namespace

void Selection::offer(Plan plan) {
  if (plan.device_peak_bytes > budget_.device) return;
  if (!least_host_ || plan.host_bytes < *least_host_) least_host_ = plan.host_bytes;
  if (!fits(plan)) return;
  offers_.push_back({plan.device_peak_bytes, plan.predicted_step_seconds, is_tight(plan)});
  if (best_ && !replaces(plan)) return pass_over(std::move(plan));
  if (best_) pass_over(std::move(*best_));
  best_ = std::move(plan);
}
void Selection::pass_over(Plan plan) {
  if (!passed_over_ || plan.predicted_step_seconds < passed_over_->predicted_step_seconds)
    passed_over_ = std::move(plan);
}
void Selection::keep_fastest() {
  if (passed_over()) std::swap(best_, passed_over_);
}

bool Selection::replaces(const Plan& plan) const {
  const double seconds = plan.predicted_step_seconds, best = best_->predicted_step_seconds;
  const bool tight = is_tight(plan);
  if (tight && !is_tight(*best_))
    return seconds <= best * (1 + rounding) || (seconds <= best * (1 + for_tight_) && is_on_front(plan));
  if (!tight && is_tight(*best_) && best_->device_peak_bytes <= plan.device_peak_bytes)
    return seconds * (1 + for_tight_) < best;
  return seconds < best;
}
bool Selection::is_on_front(const Plan& plan) const {
  return std::none_of(offers_.begin(), offers_.end(), [&](const Offer& offer) {
    return offer.peak_bytes < plan.device_peak_bytes && offer.seconds < plan.predicted_step_seconds;
  });
}

bool Selection::settled(double least_seconds) const {
  if (!best_) return false;
  const double best = best_->predicted_step_seconds;
  if (is_tight(*best_)) return best <= least_seconds * (1 + rounding);
  return best * (1 + std::max(rounding, for_tight_)) < least_seconds;
}

bool Selection::had_tight(Bytes peak_bytes, double seconds) const {
  return std::any_of(offers_.begin(), offers_.end(), [&](const Offer& offer) {
    return offer.tight && offer.peak_bytes <= peak_bytes && offer.seconds <= seconds;
  });
}

bool Offered::has_alike(const Alike& schedule) const {
  return std::any_of(alike_.begin(), alike_.end(), [&](const Alike& other) {
    return as_fast_as(other.seconds, schedule.seconds) && other.live_bytes <= schedule.live_bytes &&
           other.host_bytes <= schedule.host_bytes &&
           schedule.live_bytes - other.live_bytes <= schedule.live_bytes / as_small;
  });
}

bool Offered::has_loose_alike(const Alike& schedule) const {
  return std::any_of(loose_.begin(), loose_.end(), [&](const Loose& other) {
    return as_fast_as(other.schedule.seconds, schedule.seconds) &&
           other.schedule.live_bytes == schedule.live_bytes &&
           other.schedule.host_bytes <= schedule.host_bytes;
  });
}

void Offered::tighten_loose(Selection& selection) {
  std::stable_sort(loose_.begin(), loose_.end(), [](const Loose& a, const Loose& b) {
    return a.plan.predicted_step_seconds < b.plan.predicted_step_seconds;
  });
  for (const Loose& loose : loose_) {
    const double seconds = loose.plan.predicted_step_seconds;
    if (selection.settled(seconds * (1 - tightening_change))) continue;
    const bool has_other = selection.had_tight(loose.schedule.live_bytes, seconds * (1 + tightening_change));
    const auto tighten = has_other ? tightened_in_place : tightened_thoroughly;
    auto found = tighten(*loose.problem, loose.draft, loose.plan, selection.budget().device);
    if (!found || found->predicted_step_seconds < loose.least_seconds) continue;
    found->policy = loose.plan.policy;
    selection.offer(std::move(*found));
  }
  loose_.clear();
}

}  // namespace stowage
