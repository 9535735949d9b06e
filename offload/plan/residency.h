// Residency pass: paths of choices from the least memory to the least time.
//
// A path starts from lowest_choices. Then it promotes one item at a time:
// whichever buys the most time per byte held; ties at zero gain go to fewer link bytes. Gains are
// re-evaluated lazily: an item's gain is computed anew only when it comes to the top of the queue (Minoux,
// "Accelerated Greedy Algorithms for Maximizing Submodular Set Functions"). A path depends on graph and
// machine, never on the budget.
#pragma once

#include <memory>
#include <vector>

#include "offload/plan/candidate.h"

namespace stowage {

// The lowest level of everything: all that can be is recomputed, what crosses units is offloaded.
Choices lowest_choices(const Problem& problem);
// One of these has the fewest live bytes, serially: the lowest, all activations offloaded or kept, and first
// of all the lowest without those replays that need more than the others do.
std::vector<Choices> minimum_candidates(const Problem& problem);
// Everything on the device, nothing recomputed.
Choices resident_choices(const Problem& problem);

// The highest level of a bucket's LoadChoice or an item's ActivationChoice; 0 where there is no choice.
int highest_level(const Problem& problem, bool is_activation, std::uint32_t index);
// Device bytes that the item at this level holds beyond its own ops' time, roughly: what a gain is divided
// by.
double held_bytes(const Problem& problem, bool is_activation, std::uint32_t index, int level);

// `path.front()` is lowest_choices, the last has everything kept and resident. Time is the simulated step:
// one simulation for each item looked at, so for graphs of some hundred ops.
std::vector<Choices> simulated_path(const Problem& problem);

// Time is estimated from the lanes' totals (lane_totals.h), and items that are alike in identical blocks are
// promoted an eighth of them at a time: activations from the last block on, whose gap between forward and
// backward is shortest; residents from the first, whose gradients arrive last.
std::vector<Choices> estimated_path(const Problem& problem);
// The same from other choices on. Keeps a reference.
class PathEstimator {
 public:
  explicit PathEstimator(const Problem& problem);
  ~PathEstimator();
  PathEstimator(const PathEstimator&) = delete;
  PathEstimator& operator=(const PathEstimator&) = delete;

  std::vector<Choices> path_from(const Choices& start) const;
  // `start`, with each class of items that are alike in identical blocks at that level which is estimated to
  // be fastest of those whose ops alone need no more than `limit` bytes.
  Choices relaxed(const Choices& start, Bytes limit) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace stowage
