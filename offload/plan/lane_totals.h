// What each lane has to do in a step, summed up by phase, and the step time that this suggests.
#pragma once

#include <vector>

#include "offload/plan/candidate.h"

namespace stowage {

// Seconds of work. The front of a step is forward, beside the update of the step before on the host; the
// back is backward. Of micro-batches one after another, the front is the first one's forward, the back all
// else.
struct PhaseTotals {
  double compute = 0, h2d = 0, d2h = 0, host = 0;
  PhaseTotals& operator+=(const PhaseTotals& other);
};
struct LaneTotals {
  PhaseTotals front, back;
  double update = 0;  // on the device
  LaneTotals& operator+=(const LaneTotals& other);
  // Lanes overlap, but never wholly: in each phase the eighth root of the sum of eighth powers, which is
  // little more than the largest alone, and more where several are nearly as large.
  double seconds() const;
};

// How choices change the totals. Keeps references: graph, machine and problem must outlive it.
class LaneModel {
 public:
  explicit LaneModel(const Problem& problem);

  // All of it.
  LaneTotals totals(const Choices& choices) const;
  // The part that one unit's activations or one bucket's loads make up.
  LaneTotals of_unit(std::uint32_t unit, const Choices& choices) const;
  LaneTotals of_loads(BucketId bucket, LoadChoice choice) const;

 private:
  struct Loads {
    double front = 0, back = 0;  // transfers in each phase
  };
  void count_loads();
  double seconds_of(OpId op) const;
  void add_gradient(BucketId bucket, LoadChoice choice, PhaseTotals& totals) const;
  bool in_front(const SequenceStep& step) const;
  bool is_front(std::uint32_t unit) const;

  const Problem& problem_;
  LaneTotals fixed_;                          // the graph's own ops
  std::vector<std::vector<Loads>> loads_;     // by LoadChoice and bucket
  std::vector<double> host_update_, update_;  // by parameter bucket: its updates on the host, on the device
  std::vector<BucketId> gradient_of_;         // by parameter bucket
  std::vector<std::vector<std::size_t>> items_of_;  // by unit: activation items
};

}  // namespace stowage
