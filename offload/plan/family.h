// The plan family (docs/design.md, section 6): what the automatic policy chooses from. It depends on no
// budget, so it is made once and asked with any number of them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "offload/plan/limited_schedule.h"
#include "offload/plan/policies/policies.h"
#include "offload/plan/selection.h"

namespace stowage {

class Family {
 public:
  // Keeps a reference: `problems` must outlive it. `least`: bytes of the smallest plan. `emulated`: other
  // systems, whose plans are in the family too.
  Family(const std::vector<Problem>& problems, Bytes least, std::unique_ptr<PolicyProblems> emulated);

  // Offers all that may fit and be faster than what the selection has.
  void offer_to(Selection& selection, Offered& offered);
  // Where a tight plan is kept for which a faster one gave way, and another system's is faster than it, that
  // faster one is kept after all: so no other system's plan is ever faster.
  void match_emulated(Selection& selection) const;

 private:
  // Of one schedule.
  struct Estimate {
    double seconds = 0;                   // as time_sketch has them
    double least_seconds = 0;             // no plan of it that is faster is offered
    std::optional<double> bound_seconds;  // no plan of it is faster
    bool never_tight = false;             // tightened() found nothing
    Bytes searched = 0;                   // nor did tightened_thoroughly() within so many bytes
  };
  // One way to schedule a member's choices, and what is known of it so far. Each is worked out when a budget
  // first asks for it.
  struct Variant {
    double share = 0;  // the cap on live bytes, in parts of what the ops alone need; 0: none
    std::optional<Bytes> live_bytes;
    Estimate* estimate = nullptr;     // with `live_bytes`; shared by those that are scheduled alike
    std::uint64_t key = 0;            // with `estimate`: of the schedule
    std::optional<Bytes> peak_bytes;  // of the plan
    double plan_seconds = 0;          // with `peak_bytes`
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
  void expand(Member& member, const Selection& selection, Queue& queue, std::size_t& turns);
  void offer_variant(Member& member, Variant& variant, Selection& selection, Offered& offered);
  // The fastest plan's seconds.
  double offer_plans(const Problem& problem, const Draft& draft, Variant& variant,
                     const Offered::Alike& alike, Selection& selection, Offered& offered) const;
  static bool wants_tight(const Plan& plan, const Variant& variant, const Selection& selection);
  static bool cannot_win(const Variant& variant, bool small, const Selection& selection);
  void offer_repaired(Selection& selection) const;
  void judge(const Member& member, Variant& variant);
  const Sketcher& sketcher_of(const Member& member);
  static Sketch sketch(const Sketcher& sketcher, const Member& member, const Variant& variant);

  Bytes least_;
  double margin_;  // by how much of an estimate plans of large graphs may be faster
  std::unique_ptr<PolicyProblems> emulated_;
  std::vector<Member> members_;                // of two alike in time the first is taken
  std::vector<std::vector<Choices>> minimum_;  // minimum_candidates by problem
  std::vector<Repaired> repaired_;             // fastest first
  const Member* at_hand_ = nullptr;            // whose turn it is
  std::optional<Sketcher> sketcher_;           // its own
  std::map<std::pair<const Problem*, std::uint64_t>, Estimate> estimates_;  // by the schedule's key
};

}  // namespace stowage
