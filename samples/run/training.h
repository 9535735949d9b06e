// One run of train_gpt or train_bert, from the data to the summary.
#pragma once

#include "samples/options/options.h"
#include "samples/run/job.h"

namespace stowage::samples {

// Returns the program's exit code: 0, or 130 when Ctrl-C ended the run after a step; before the first step
// that ends the process (underway.h). Throws InvalidInput for what the user can put right before the training
// starts (a file, a shape, a budget too small), other Errors for what happens later. Prints to stdout. The
// ranks of a job call it together.
int train(const Options& options, Job& job);

}  // namespace stowage::samples
