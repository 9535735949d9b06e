#include "offload/plan/selection.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stowage {
namespace {

// Of a simulation.
constexpr double rounding = 1e-9;
// Of schedules so alike in time, of which one has so much less of the bytes, that is as good as any.
constexpr double as_fast = 1e-6;
constexpr Bytes as_small = 500;
constexpr Bytes lower_caps[] = {98, 96, 94, 92, 90, 88, 86};  // in hundredths of the live bytes

bool as_fast_as(double a, double b) { return std::abs(a - b) <= as_fast * b; }

}  // namespace

void Selection::offer(Plan plan) {
  if (plan.device_peak_bytes > budget_.device) return;
  if (!least_host_ || plan.host_bytes < *least_host_) least_host_ = plan.host_bytes;
  if (!fits(plan)) return;
  offers_.push_back({plan.device_peak_bytes, plan.predicted_step_seconds, is_tight(plan)});
  keep_tight(plan);
  if (best_ && !replaces(plan)) return pass_over(std::move(plan));
  if (best_) pass_over(std::move(*best_));
  best_ = std::move(plan);
}
void Selection::pass_over(Plan plan) {
  if (!passed_over_ || plan.predicted_step_seconds < passed_over_->predicted_step_seconds)
    passed_over_ = std::move(plan);
}
void Selection::keep_tight(const Plan& plan) {
  if (for_tight_ == 0 || !is_tight(plan)) return;
  if (best_ && plan.predicted_step_seconds > best_->predicted_step_seconds * (1 + tightening_loss)) return;
  const auto is_no_better = [](const Plan& a, const Plan& b) {
    return a.device_peak_bytes >= b.device_peak_bytes && a.predicted_step_seconds >= b.predicted_step_seconds;
  };
  if (std::any_of(tight_.begin(), tight_.end(), [&](const Plan& kept) { return is_no_better(plan, kept); }))
    return;
  std::erase_if(tight_, [&](const Plan& kept) { return is_no_better(kept, plan); });
  tight_.push_back(plan);
}
void Selection::settle_for_tight(double most_seconds) {
  if (!best_ || is_tight(*best_)) return;
  const Bytes arena = best_->device_peak_bytes;
  double seconds =
      std::min(most_seconds * (1 + rounding), best_->predicted_step_seconds * (1 + tightening_loss));
  for (const Offer& offer : offers_)
    if (offer.peak_bytes < arena) seconds = std::min(seconds, offer.seconds * (1 + rounding));
  const Plan* fastest = nullptr;
  for (const Plan& plan : tight_)
    if (plan.device_peak_bytes <= arena && plan.predicted_step_seconds <= seconds &&
        (fastest == nullptr || plan.predicted_step_seconds < fastest->predicted_step_seconds))
      fastest = &plan;
  if (fastest != nullptr) give_way_to(*fastest);
}
void Selection::give_way_to(Plan tight) {
  pass_over(std::move(*best_));
  best_ = std::move(tight);
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
    if (loose.has_alike && !(selection.best() && loose.is(*selection.best()))) continue;
    const bool has_other = selection.had_tight(loose.schedule.live_bytes, seconds * (1 + tightening_change));
    const Bytes most = selection.budget().device;
    if (!has_other && loose.searched != nullptr && *loose.searched >= most) continue;
    const auto tighten = has_other ? tightened_in_place : tightened_thoroughly;
    auto found = tighten(*loose.problem, loose.draft, loose.plan, most);
    if (!found && !has_other && loose.searched != nullptr) *loose.searched = most;
    if (!found || found->predicted_step_seconds < loose.least_seconds) continue;
    found->policy = loose.plan.policy;
    selection.offer(std::move(*found));
  }
}

void Offered::lower_fastest(Selection& selection) const {
  if (!selection.best() || is_tight(*selection.best())) return;
  const Bytes arena = selection.best()->device_peak_bytes;
  const double seconds = selection.best()->predicted_step_seconds;
  const auto loose = std::find_if(loose_.begin(), loose_.end(),
                                  [&](const Loose& each) { return each.is(*selection.best()); });
  if (loose == loose_.end()) return;
  double last = 0;
  for (Bytes cap : lower_caps) {
    const Draft draft = rescheduled(*loose->problem, loose->draft, loose->schedule.live_bytes / 100 * cap);
    std::optional<Plan> plan = complete(*loose->problem, draft);
    if (std::exchange(last, plan->predicted_step_seconds) == plan->predicted_step_seconds) continue;
    if (plan->predicted_step_seconds > seconds * (1 + tightening_loss)) return;
    if (!is_tight(*plan)) {
      const Plan wide = std::move(*plan);
      plan = tightened(*loose->problem, draft, wide, arena, {std::max(seconds, loose->least_seconds), 0});
      if (!plan) plan = tightened_thoroughly(*loose->problem, draft, wide, arena);
    }
    // One that is faster might not be found for a larger budget.
    if (!plan || plan->device_peak_bytes > arena) continue;
    if (plan->predicted_step_seconds < std::max(seconds, loose->least_seconds)) continue;
    plan->policy = loose->plan.policy;
    return selection.offer(std::move(*plan));
  }
}

}  // namespace stowage
