// A quick measure of the machine, so that predicted step times mean something.
#pragma once

#include <span>

#include "src/device/host_limits.h"
#include "src/machine/op_profile.h"
#include "stowage/graph_builder.h"
#include "stowage/machine.h"
#include "stowage/models.h"
#include "tools/calibrate/fit.h"

namespace stowage::samples {

struct Calibration {
  Machine machine;
  FittedRates fitted;
  OpProfile profile;  // times of ops on the compute lane
};

// Last words of a refusal to measure: how to do without a measurement.
inline constexpr const char* or_measured = ", or give a machine that was measured before: --machine";

// Trains a model of the family with the sizes `model` (fewer layers, smaller where it is large) on a
// simulated device of its own for about a second, with the present number of threads: alone, beside copies at
// the rate of `link` (where one of some bytes takes milliseconds at most) and beside updates on the host, all
// of which use the same cores. Measures the codec, too. The result steers the plan, never the numbers of the
// training. `link` serves both ways. If `limits` of the host leave less room, measures a smaller model;
// throws OutOfMemory, with the tightest limit, if there is no room for the smallest.
Calibration calibrate_quick(const ModelFamily& family, const ModelConfig& model, DataType type,
                            const AdamW& optimizer, const Link& link, std::span<const HostLimit> limits);

// Measures the model's ops on a card, whose rates are `machine`: one layer of the model, with as much of a
// micro-batch as takes some milliseconds and fits the budget. Empty if one sample is too much. Throws as
// Engine does.
OpProfile profile_on_card(Device& card, const Machine& machine, const ModelFamily& family,
                          const ModelConfig& model, DataType type, const AdamW& optimizer,
                          const Budget& budget);

}  // namespace stowage::samples
