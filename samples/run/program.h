// The main function of train_gpt and train_bert.
//
// Exit codes: 0 done; 2 the command line, a file or a budget is wrong, one line says what to do;
// 1 the run failed; 130 Ctrl-C or SIGTERM, after finishing the step, and before the first one at once.
#pragma once

#include "stowage/model_files.h"

namespace stowage::samples {

int run_program(ModelKind kind, int count, const char* const* arguments);

}  // namespace stowage::samples
