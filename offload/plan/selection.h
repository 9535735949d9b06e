// What of a family has been offered for one budget, and which plan of it is kept.
#pragma once

#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "offload/plan/tighten.h"

namespace stowage {

// Keeps the fastest plan that fits, of equals a tight one, and of those that fit the device the one with
// fewest host bytes. Of a large graph it keeps a tight one instead of one with a larger arena that is faster
// by no more than tightening_change.
//
// So a budget that holds more makes no plan slower: whoever gives way has the larger arena, and a tight plan
// is not kept instead of it where one with a smaller arena is faster than that.
//
// When all has been offered, and the fastest plan is not tight, a tight one with no larger arena may be kept
// instead that is slower by up to tightening_loss, if it is no slower than any plan with a smaller arena than
// the fastest has, nor than what a budget without room for the fastest gets.
class Selection {
 public:
  explicit Selection(const Budget& budget, bool large_graph = false)
      : budget_(budget), for_tight_(large_graph ? tightening_change : 0) {}
  void offer(Plan plan);
  // By one that takes as long, or less.
  bool beaten(double seconds) const { return best_ && best_->predicted_step_seconds <= seconds; }
  // Whether no plan that takes at least so long would be kept.
  bool settled(double least_seconds) const;
  // Whether the host has no room for so many bytes, and a plan that fits the device is known to need no more.
  bool lacks_host(Bytes host_bytes) const {
    return host_bytes > budget_.host && least_host_ && *least_host_ <= host_bytes;
  }
  // Whether one of those that fit was tight, of no more bytes, and took no longer.
  bool had_tight(Bytes peak_bytes, double seconds) const;
  bool fits(const Plan& plan) const {
    return plan.device_peak_bytes <= budget_.device && plan.host_bytes <= budget_.host;
  }
  const Budget& budget() const { return budget_; }
  std::optional<Plan>& best() { return best_; }
  const std::optional<Plan>& best() const { return best_; }
  Bytes least_host() const { return least_host_.value_or(0); }
  // Whether a faster plan gave way to the tight one that is kept; and keeps that after all.
  bool passed_over() const { return passed_over_ && !beaten(passed_over_->predicted_step_seconds); }
  void keep_fastest();
  // A tight one that is no slower than `most_seconds`: no smaller budget gets a faster one.
  void settle_for_tight(double most_seconds = std::numeric_limits<double>::infinity());
  // Whether the plan that is kept should give way to a tight one.
  bool is_loose() const { return for_tight_ > 0 && best_ && !is_tight(*best_); }
  void give_way_to(Plan tight);

 private:
  struct Offer {
    Bytes peak_bytes = 0;
    double seconds = 0;
    bool tight = false;
  };
  bool replaces(const Plan& plan) const;
  bool is_on_front(const Plan& plan) const;
  void pass_over(Plan plan);
  void keep_tight(const Plan& plan);

  Budget budget_;
  double for_tight_;  // what a tight plan may be slower
  std::optional<Plan> best_;
  std::optional<Plan> passed_over_;  // the fastest
  std::vector<Plan> tight_;          // of large graphs: each faster than those with smaller arenas
  std::vector<Offer> offers_;        // that fit
  std::optional<Bytes> least_host_;
};

// What was offered of large graphs, for one budget. Buckets of several sizes, and units of two, make
// schedules that are the same or nearly so.
class Offered {
 public:
  struct Alike {
    double seconds = 0;
    Bytes live_bytes = 0, host_bytes = 0;
  };
  // A plan that no tight places were found for at once.
  struct Loose {
    const Problem* problem = nullptr;
    Draft draft;
    Plan plan;
    Alike schedule;             // no plan of it needs fewer than its live bytes
    double least_seconds = 0;   // no plan of it that is faster is offered
    bool has_alike = false;     // another one that was put off: tightened only where it is the fastest
    Bytes* searched = nullptr;  // a thorough search found none within so many bytes
    bool is(const Plan& other) const {
      return plan.device_peak_bytes == other.device_peak_bytes &&
             plan.predicted_step_seconds == other.predicted_step_seconds;
    }
  };

  // Whether a schedule with this key is new.
  bool add(std::uint64_t key) { return keys_.insert(key).second; }
  // Whether one as fast with as many bytes, or a little less, was offered.
  bool has_alike(const Alike& schedule) const;
  // Whether one as fast with as many bytes has a plan that is put off.
  bool has_loose_alike(const Alike& schedule) const;
  void add(const Alike& schedule) { alike_.push_back(schedule); }
  void add(Loose loose) { loose_.push_back(std::move(loose)); }
  // When all that there is has been offered: looks for tight plans about as fast as the loose ones, the
  // fastest first, where `selection` would keep one. Only in place where it had a tight one about as fast,
  // that fits wherever theirs would: so what is found for a smaller budget is as good as known for a larger
  // one.
  void tighten_loose(Selection& selection);
  // Where the fastest is a loose one all the same: a tight plan of its lifetimes under a lower cap.
  void lower_fastest(Selection& selection) const;

 private:
  std::set<std::uint64_t> keys_;
  std::vector<Alike> alike_;
  std::vector<Loose> loose_;
};

}  // namespace stowage
