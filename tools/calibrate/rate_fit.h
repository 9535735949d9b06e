// From the times of ops to the two rates that the planner costs ops by.
#pragma once

#include <span>

#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage {

// Says which rates of a machine were measured; the others are Machine's defaults.
struct FittedRates {
  bool arithmetic = false;
  bool memory = false;
};

// One op's measured time.
struct OpTime {
  OpCost cost;
  double seconds = 0;
};

// Fits the two rates of op_seconds (src/graph/cost.h): ops are told apart by what binds them under
// the rates found so far. Rates of `machine` stay where no op speaks for them; says which do not.
FittedRates fit_rates(std::span<const OpTime> times, Machine& machine);

}  // namespace stowage
