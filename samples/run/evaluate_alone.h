// --steps 0 with an evaluation and nothing else: the model alone is on host and device, without gradients and
// optimizer state.
#pragma once

#include "samples/options/options.h"
#include "samples/run/checkpoints.h"
#include "samples/run/init_export.h"
#include "samples/run/job.h"
#include "samples/run/run_outputs.h"
#include "samples/task/task.h"

namespace stowage::samples {

// Returns whether the run evaluates on one device, and neither trains nor writes anything but a log.
bool evaluates_alone(const Options& options, const Task& task);

// Evaluates the model of --resume or --init, or one of random weights, and prints and logs what comes of it:
// the bits of an evaluation beside a training. `training`: the graph that --resume and --init were compared
// with. Throws InvalidInput for a budget in which the model is not evaluated, OutOfMemory where the host has
// not enough memory.
void evaluate_alone(Options& options, Task& task, const Graph& training, const RunCheckpoints& checkpoints,
                    const InitialModel& initial, StepLog& log, Job& job);

}  // namespace stowage::samples
