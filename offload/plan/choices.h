// What the planner decides for each item. Higher values use more device memory and less time.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/plan.h"

namespace stowage {

// Of an activation bucket that backward reads. Only what a unit saves (recompute.h) can be recomputed.
enum class ActivationChoice : std::uint8_t {
  reload,     // as offload, and brought back for every op that reads it, as long as none writes it
  recompute,  // dropped after forward, rebuilt in backward
  offload,    // on the host between forward and backward
  keep,
};
// Of a parameter or input bucket: when it is brought in.
enum class LoadChoice : std::uint8_t {
  each_op,    // for every op that reads it
  each_unit,  // once for a unit's forward, once for its backward
  held,       // once per step
  resident,   // parameters: stays across steps with its optimizer state, updated on the device
};

struct Choices {
  std::vector<ActivationChoice> activations;  // by bucket
  std::vector<LoadChoice> loads;              // by bucket; meaningful for parameters and inputs
  friend bool operator==(const Choices&, const Choices&) = default;
};

}  // namespace stowage
