// Schedule pass under a byte limit: serial list scheduling of one period, gate to gate.
//
// The compute lane's ops are timed one by one. Before each, its prefetches start in order of need, as early
// as link, host and free bytes allow: bytes that an earlier op takes are never in the way, for those ops are
// timed already. So far from a fixed distance, a transfer goes ahead as far as its own place in the step has
// room. (Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", with bytes
// as the resource.)
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "offload/plan/candidate.h"

namespace stowage {

struct LimitedSketch {
  Draft draft;  // with first, last and spans
  Choices choices;
  Bytes limit = 0;
  double seconds = 0;  // of the period, waits for bytes included: what to expect if all find a place
  Bytes peak = 0;      // most bytes at one time, aligned
};

// Keeps a reference: `problem` must outlive it.
class LimitedScheduler {
 public:
  explicit LimitedScheduler(const Problem& problem);
  // nullopt where some op's own operands exceed the limit, or the period takes `cutoff` seconds or more.
  std::optional<LimitedSketch> run(const Choices& choices, Bytes limit,
                                   double cutoff = std::numeric_limits<double>::infinity()) const;
  // Placement by position, as complete() does it; and by time, of few lifetimes: with prefetches as soon as
  // they may start, or else as late; with no more than the sketch's peak, or else with up to its limit.
  // Offers each plan within the limit: within it bytes are as scarce as they were for the schedule, so that
  // no such plan is faster than the sketch.
  void complete_each(const LimitedSketch& sketch, const std::function<void(Plan)>& offer) const;

 private:
  std::optional<LimitedSketch> run(const Choices& choices, Bytes limit, double cutoff, bool late) const;

  const Problem& problem_;
  std::vector<double> op_seconds_;   // by op
  std::vector<double> h2d_, d2h_;    // by bucket
  std::vector<Bytes> bytes_;         // by bucket, aligned
  std::vector<double> host_update_;  // by parameter bucket
  double gate_seconds_ = 0;
};

}  // namespace stowage
