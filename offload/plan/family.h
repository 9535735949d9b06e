// The plan family (docs/design.md, section 6): what the automatic policy chooses from. It depends on no
// budget, so it is made once and asked with any number of them.
#pragma once

#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

#include "offload/plan/limited_schedule.h"
#include "offload/plan/policies/policies.h"
#include "offload/plan/tighten.h"

namespace stowage {

// Keeps the fastest plan that fits, of equals a tight one, and of those that fit the device the one with
// fewest host bytes. Of a large graph it keeps a tight one instead of one with a larger arena that is faster
// by no more than tightening_change.
//
// So a budget that holds more makes no plan slower: whoever gives way has the larger arena, and a tight plan
// is not kept instead of it where one with a smaller arena is faster than that.
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
  const Budget& budget() const { return budget_; }
  std::optional<Plan>& best() { return best_; }
  const std::optional<Plan>& best() const { return best_; }
  Bytes least_host() const { return least_host_.value_or(0); }
  // Whether a faster plan gave way to the tight one that is kept; and keeps that after all.
  bool passed_over() const { return passed_over_ && !beaten(passed_over_->predicted_step_seconds); }
  void keep_fastest();

 private:
  struct Offer {
    Bytes peak_bytes = 0;
    double seconds = 0;
  };
  bool replaces(const Plan& plan) const;
  bool is_on_front(const Plan& plan) const;
  void pass_over(Plan plan);

  Budget budget_;
  double for_tight_;  // what a tight plan may be slower
  std::optional<Plan> best_;
  std::optional<Plan> passed_over_;  // the fastest
  std::vector<Offer> offers_;        // that fit
  std::optional<Bytes> least_host_;
};

class Family {
 public:
  // Keeps a reference: `problems` must outlive it. `least`: bytes of the smallest plan. `emulated`: other
  // systems, whose plans are in the family too.
  Family(const std::vector<Problem>& problems, Bytes least, std::unique_ptr<PolicyProblems> emulated);

  // Offers all that may fit and be faster than what the selection has.
  void offer_to(Selection& selection);
  // Where a tight plan is kept for which a faster one gave way, and another system's is faster than it, that
  // faster one is kept after all: so no other system's plan is ever faster.
  void match_emulated(Selection& selection) const;

 private:
  // One way to schedule a member's choices, and what is known of it so far. Each is worked out when a budget
  // first asks for it.
  struct Variant {
    double share = 0;  // the cap on live bytes, in parts of what the ops alone need; 0: none
    std::optional<Bytes> live_bytes;
    std::optional<double> seconds;        // as time_sketch estimates them
    std::uint64_t key = 0;                // with `seconds`: of the schedule
    std::optional<Bytes> peak_bytes;      // of the plan
    double plan_seconds = 0;              // with `peak_bytes`
    double least_seconds = 0;             // with `seconds`: no plan of it that is faster is offered
    std::optional<double> bound_seconds;  // no plan of it is faster
  };
  struct Member {
    const Problem* problem = nullptr;
    Choices choices;
    Handicaps handicaps;
    std::optional<std::uint32_t> distance;  // instead of shares
    std::vector<Variant> variants;
    bool on_path = false;
    bool emulated = false;
    std::optional<Bytes> serial_bytes{};
    double compute_seconds = 0;  // with `serial_bytes`
  };
  // What was offered of large graphs. Buckets of several sizes make schedules that are nearly the same.
  struct Alike {
    double seconds = 0;
    Bytes live_bytes = 0, host_bytes = 0;
  };
  struct Offered {
    std::set<std::uint64_t> keys;
    std::vector<Alike> alike;
    // Whether one as fast with as many bytes, or a little less, was offered.
    bool has_alike(const Alike& schedule) const;
  };
  // The front that repair finds (repair.h).
  struct Repaired {
    const Problem* problem = nullptr;
    LimitedSketch limited;
  };
  struct Turn {
    double seconds = 0, least_seconds = 0;
    Bytes live_bytes = 0;    // 0: of the member as a whole, which is looked at before its variants
    std::size_t number = 0;  // the order of those that are as fast
    Member* member = nullptr;
    Variant* variant = nullptr;  // null: the member as a whole
  };
  struct Later {
    bool operator()(const Turn& a, const Turn& b) const {
      return std::tuple(a.seconds, a.live_bytes, a.number) > std::tuple(b.seconds, b.live_bytes, b.number);
    }
  };
  using Queue = std::priority_queue<Turn, std::vector<Turn>, Later>;

  void add_members(const Problem& problem, const std::vector<Choices>& all, bool on_path);
  void add_paths(const std::vector<Problem>& problems);
  void add_emulated();
  void add_repaired(const std::vector<Problem>& problems);
  void measure_margin(const Problem& problem);
  void begin(Member& member, const Selection& selection, Queue& queue, std::size_t& turns);
  void expand(Member& member, const Selection& selection, Queue& queue, std::size_t& turns) const;
  void offer_variant(Member& member, Variant& variant, Selection& selection, Offered& offered) const;
  // The fastest plan's seconds.
  double offer_plans(const Problem& problem, const Draft& draft, Variant& variant,
                     Selection& selection) const;
  static bool wants_tight(const Plan& plan, const Variant& variant, const Selection& selection);
  static bool cannot_win(const Variant& variant, bool small, const Selection& selection);
  void offer_repaired(Selection& selection) const;
  void judge(const Sketcher& sketcher, const Member& member, Variant& variant) const;
  static Sketch sketch(const Sketcher& sketcher, const Member& member, const Variant& variant);

  Bytes least_;
  double margin_;  // by how much of an estimate plans of large graphs may be faster
  std::unique_ptr<PolicyProblems> emulated_;
  std::vector<Member> members_;                // of two alike in time the first is taken
  std::vector<std::vector<Choices>> minimum_;  // minimum_candidates by problem
  std::vector<Repaired> repaired_;             // fastest first
};

}  // namespace stowage
