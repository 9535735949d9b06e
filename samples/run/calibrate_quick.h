// A quick measure of the machine, so that predicted step times mean something.
#pragma once

#include "samples/task/task.h"
#include "stowage/graph_builder.h"
#include "stowage/machine.h"
#include "stowage/models.h"
#include "tools/calibrate/op_profile.h"
#include "tools/calibrate/rate_fit.h"

namespace stowage::samples {

struct Calibration {
  Machine machine;
  FittedRates fitted;
  OpProfile profile;  // of the ops on the compute lane
};

// Trains the model that `build` makes of `model` (fewer layers, smaller where it is large) on a simulated
// device of its own for about a second, with the present number of threads: alone, beside copies at the rate
// of `link` (where one of some bytes takes milliseconds at most) and beside updates on the host, all of which
// use the same cores. The result steers the plan, never the numbers of the training. `link` serves both ways.
Calibration calibrate_quick(const BuildModel& build, const GptConfig& model, DataType type,
                            const AdamW& optimizer, const Link& link);

// The same of a card, whose rates are `machine`: one layer of the model, with as much of a micro-batch as
// takes some milliseconds and fits the budget. Empty where one sample is too much. Throws as
// Engine does.
OpProfile profile_on_card(Device& card, const Machine& machine, const BuildModel& build,
                          const GptConfig& model, DataType type, const AdamW& optimizer,
                          const Budget& budget);

}  // namespace stowage::samples
