// A quick measure of the machine, so that predicted step times mean something.
#pragma once

#include <span>

#include "stowage/machine.h"
#include "stowage/models.h"

namespace stowage::samples {

// Runs one layer of `model` (smaller where it is large) on the CPU kernels for at most about 0.3 s,
// and fits the rates that explain the measured op times, with the present number of threads. The
// result steers the plan, never the numbers of the training. `link` serves both ways.
Machine calibrate_quick(const GptConfig& model, const Link& link);

// One op's measured time.
struct OpTime {
  OpCost cost;
  double seconds = 0;
};

// Fits the two rates of op_seconds (src/graph/cost.h): ops are told apart by what binds them under
// the rates found so far. Rates of `machine` stay where no op speaks for them.
void fit_rates(std::span<const OpTime> times, Machine& machine);

}  // namespace stowage::samples
