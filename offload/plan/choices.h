// What the planner decides for each item. Higher values use more device memory and less time.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/plan.h"

namespace stowage {

// Of a unit's activations (Residency of the saved tensors and of the unit's inputs).
enum class ActivationChoice : std::uint8_t { recompute_offload_input, recompute, keep };
// Of a parameter or input bucket: when it is brought in.
enum class LoadChoice : std::uint8_t {
  each_op,    // for every op that reads it
  each_unit,  // once for a unit's forward, once for its backward
  held,       // once per step
  resident,   // stays across steps, updated on the device (policy none)
};

struct Choices {
  std::vector<ActivationChoice> units;  // by unit
  std::vector<LoadChoice> loads;        // by bucket; meaningful for parameters and inputs
  bool optimizer_on_host = true;
  friend bool operator==(const Choices&, const Choices&) = default;
};

}  // namespace stowage
