// The main function of train_gpt and train_bert, and a run from the data to the summary.
//
// Exit codes: 0 done; 2 the command line, a file or a budget is wrong, one line says what to do;
// 1 the run failed; 130 Ctrl-C or SIGTERM, after finishing the step, and before the first one at once.
#pragma once

#include "samples/options/options.h"
#include "samples/run/job.h"
#include "stowage/model_files.h"

namespace stowage::samples {

int run_program(Program program, int count, const char* const* arguments);

// Returns the program's exit code: 0, or 130 when Ctrl-C ended the run after a step; before the first step
// that ends the process (underway.h). Throws InvalidInput for what the user can put right before the training
// starts (a file, a shape, a budget too small), other Errors for what happens later. Prints to stdout. The
// ranks of a job call it together.
int train(const Options& options, Job& job);

}  // namespace stowage::samples
