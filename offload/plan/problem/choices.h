// The choices of a plan: for each activation bucket and each parameter or input bucket. Values are ordered: a
// higher LoadChoice takes more device memory and moves fewer bytes, and so, but for recompute, does a higher
// ActivationChoice.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "stowage/plan.h"

namespace stowage {

// Of an activation bucket. A *gap* between two uses is long if a whole stage (a unit's forward or backward)
// lies between them. A value can be recomputed if a unit saves it for its own backward, or if it has a
// remaker (recompute.h).
enum class ActivationChoice : std::uint8_t {
  reload,     // as spill, and brought back for every op that reads it in backward, until one writes it
  recompute,  // dropped after forward, rebuilt in backward; if remade, on the host in forward's long gaps
  spill,      // on the host during every long gap
  offload,    // on the host between its last forward and its first backward use
  keep,
};
// Of a parameter or input bucket: when it is brought in.
enum class LoadChoice : std::uint8_t {
  each_op,    // for every op that reads it
  each_unit,  // once for a unit's forward, once for its backward; in layer_major order for all micro-batches
  held,       // once per step
  in_slices,  // parameters that are cut: stays across steps, with the optimizer state of some slices, which
              // are updated on the device; the others are updated on the host and brought in once per step
  resident,   // parameters: stays across steps with its optimizer state, updated on the device
};

// How updates on the host that begin before the gate end.
enum class EarlyUpdates : std::uint8_t {
  undoable,  // behind the gate, where they can be taken back (InstructionKind::speculate)
  final,     // at once, for good (Plan::optimizer_in_backward)
};

struct Choices {
  std::vector<ActivationChoice> activations;  // by bucket
  std::vector<LoadChoice> loads;              // by bucket; meaningful for parameters and inputs
  // By bucket, for those in_slices: how many slices are updated on the device, the first ones. None: 0.
  std::map<BucketId, std::uint32_t> device_slices{};
  // By bucket, for parameters that are updated on the host as a whole: 1 where that begins before the gate.
  // Empty: nowhere.
  std::vector<std::uint8_t> speculated{};
  // Emulated systems alone (policies/policies.h): parameters that are held are on the device from the step's
  // first position to its last; and what is loaded for each op stays until an op reads another such bucket.
  bool held_all_step = false, until_next_load = false;
  friend bool operator==(const Choices&, const Choices&) = default;
  friend auto operator<=>(const Choices&, const Choices&) = default;
};

struct ActivationItem;
// Reads and sets the item's choice in `choices`: all its buckets have the same.
ActivationChoice choice_of(const ActivationItem& item, const Choices& choices);
void choose(const ActivationItem& item, ActivationChoice choice, Choices& choices);

}  // namespace stowage
