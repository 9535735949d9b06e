// The decisions of a plan, item by item. Higher values use more device memory and less time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "stowage/plan.h"

namespace stowage {

// Of an activation bucket with a gap between two uses. A *gap* is long if a whole stage (a unit's forward or
// backward) lies between the two uses. Values can be recomputed that a unit saves for its own backward, and
// those that have a remaker (recompute.h).
enum class ActivationChoice : std::uint8_t {
  reload,     // as spill, and brought back for every op that reads it in backward, until one writes it
  recompute,  // dropped after forward, rebuilt in backward
  spill,      // on the host during every long gap
  offload,    // on the host between its last forward and its first backward use
  keep,
};
// Of a parameter or input bucket: when it is brought in.
enum class LoadChoice : std::uint8_t {
  each_op,    // for every op that reads it
  each_unit,  // once for a unit's forward, once for its backward
  held,       // once per step
  in_slices,  // parameters that are cut: stays across steps, with the optimizer state of some slices, which
              // are updated on the device; the others are updated on the host and brought in once per step
  resident,   // parameters: stays across steps with its optimizer state, updated on the device
};

struct Choices {
  std::vector<ActivationChoice> activations;  // by bucket
  std::vector<LoadChoice> loads;              // by bucket; meaningful for parameters and inputs
  // By bucket, of those in_slices: how many slices are updated on the device, the first ones. Else none.
  std::map<BucketId, std::uint32_t> device_slices{};
  friend bool operator==(const Choices&, const Choices&) = default;
};

}  // namespace stowage
