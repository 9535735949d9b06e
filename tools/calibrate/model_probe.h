// Measures training steps of small models, op by op, so that plans for other models know the times of ops.
#pragma once

#include <vector>

#include "stowage/launch_table.h"
#include "stowage/machine.h"
#include "stowage/machine_file.h"
#include "stowage/models.h"

namespace stowage {

struct ProbedModel {
  const ModelFamily* family = nullptr;
  ModelConfig config{};
};

struct ModelProbeOptions {
  // Models to measure; without any, nothing is measured. The last one measures the shares of measure_models.
  std::vector<ProbedModel> models;
  int least_steps = 4;
  // Seconds of steps of each model; a started step is finished, and least_steps are made.
  double seconds = 0.25;
};

// Some twenty shapes, from width 32 to 1024, with few and many tokens: ops of most models lie between the ops
// of these shapes.
ModelProbeOptions small_models();
// Shapes for a card, of widths from 768 to 4096: smaller ops take no longer on a card than their launch.
ModelProbeOptions card_models();
ModelProbeOptions few_card_models();  // takes a second or two

// Appends to `file.ops` the ops of the models that fit the device, in work type `type`; for the simulated
// device, which computes with the host's own cores, measures the shares that its lanes leave to each other.
// `file` has the link and the host's rates. The device's memory is all given back. Throws as Engine does.
void measure_models(Device& device, const LaunchTable& kernels, DataType type, const Machine& modelled,
                    const ModelProbeOptions& options, MachineFile& file);

}  // namespace stowage
