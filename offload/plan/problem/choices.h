// The choices of a plan: one for each activation bucket, and one for each parameter or input bucket. Their
// values are ordered: a higher LoadChoice takes more device memory and moves fewer bytes, and so does a
// higher ActivationChoice, except for recompute.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "stowage/plan.h"

namespace stowage {

// The choice for an activation bucket. A *pause* is the time between two uses of a value; it is long if a
// whole stage (a unit's forward or backward) lies within it. A value can be recomputed if a unit saves it for
// its own backward, or if it has a remaker (recompute.h).
enum class ActivationChoice : std::uint8_t {
  reload,  // spilled like `spill`, but brought back for each backward op that reads it, until an op writes it
  recompute,  // dropped after forward, rebuilt in backward; if remade, on the host in forward's long pauses
  spill,      // kept on the host during every long pause
  offload,    // kept on the host between its last forward and its first backward use
  keep,
};
// The choice for a parameter or input bucket: when it is brought in.
enum class LoadChoice : std::uint8_t {
  each_op,    // loaded for every op that reads it
  each_unit,  // loaded once for a unit's forward and backward each; layer_major: for all micro-batches;
              // `ahead` of several ranges (Graph::range_begins): once for a range's, for all micro-batches
  held,       // loaded once per step
  in_slices,  // parameters that are cut: stays across steps with the optimizer state of its first slices,
              // which are updated on the device; the host updates the other slices, and they are brought in
              // once per step
  resident,   // parameters: stays across steps with its optimizer state and is updated on the device
};

// The way in which an early update on the host ends.
enum class EarlyUpdates : std::uint8_t {
  undoable,  // ends behind the gate; a clipped step can take it back (InstructionKind::speculate)
  final,     // ends at once, for good (Plan::optimizer_in_backward)
};

struct Choices {
  std::vector<ActivationChoice> activations;  // choice of each activation bucket
  std::vector<LoadChoice> loads;              // choice of each bucket; meaningful for parameters and inputs
  // The number of slices that the device updates, for buckets with in_slices; buckets without an entry: 0.
  std::map<BucketId, std::uint32_t> device_slices{};
  // Indexed by bucket: 1 if the host updates the whole parameter bucket early (before the gate). Empty: no
  // update is early.
  std::vector<std::uint8_t> speculated{};
  // For emulated systems alone (policies/policies.h). held_all_step: held parameters are on the device from
  // the step's first position to its last. until_next_load: a bucket that is loaded for each op stays until
  // an op reads another such bucket.
  bool held_all_step = false, until_next_load = false;
  friend bool operator==(const Choices&, const Choices&) = default;
  friend auto operator<=>(const Choices&, const Choices&) = default;
};

struct ActivationItem;
// Reads and sets the item's choice in `choices`; all buckets of an item have the same choice.
ActivationChoice choice_of(const ActivationItem& item, const Choices& choices);
void choose(const ActivationItem& item, ActivationChoice choice, Choices& choices);

}  // namespace stowage
