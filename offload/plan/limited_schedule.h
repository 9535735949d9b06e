// Schedule pass under a byte limit: serial list scheduling of one period, gate to gate.
//
// The compute lane's ops are timed one by one. Before each, its prefetches start in order of need, as early
// as link, host and free bytes allow: bytes that an earlier op takes are never in the way, for those ops are
// timed already. So far from a fixed distance, a transfer goes ahead as far as its own place in the step has
// room. (Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", with bytes
// as the resource.) Where a slower search pays, other orders are looked at too (order_search.h).
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "offload/plan/order_search.h"
#include "offload/plan/period.h"

namespace stowage {

struct LimitedSketch {
  std::shared_ptr<const Period> period;
  PeriodTimes times;
  Bytes limit = 0;
  double seconds = 0;  // of the period, waits for bytes included: what to expect if all find a place
  Bytes peak = 0;      // most bytes at one time, aligned
  const Choices& choices() const { return period->choices; }
};

// Keeps a reference: `problem` must outlive it.
class LimitedScheduler {
 public:
  explicit LimitedScheduler(const Problem& problem);
  std::shared_ptr<const Period> period(const Choices& choices) const;
  // nullopt where some op's own operands exceed the limit, or the period takes `cutoff` seconds or more.
  std::optional<LimitedSketch> run(std::shared_ptr<const Period> period, Bytes limit,
                                   double cutoff = std::numeric_limits<double>::infinity()) const;
  std::optional<LimitedSketch> run(const Choices& choices, Bytes limit,
                                   double cutoff = std::numeric_limits<double>::infinity()) const;
  // In other orders than that of need; fastest first, all in less than `cutoff`.
  std::vector<LimitedSketch> search(const std::shared_ptr<const Period>& period, Bytes limit, double cutoff,
                                    const OrderEffort& effort) const;
  // With one load elsewhere (moved_orders()).
  std::vector<LimitedSketch> moved(const LimitedSketch& sketch, double cutoff) const;
  const Problem& problem() const { return problem_; }
  const PeriodRates& rates() const { return rates_; }

 private:
  static std::vector<LimitedSketch> sketches_of(const std::shared_ptr<const Period>& period, Bytes limit,
                                                std::vector<FoundOrder> orders);

  const Problem& problem_;
  PeriodRates rates_;
};

}  // namespace stowage
