// The files that a run was asked for.
#pragma once

#include "samples/model_files.h"
#include "samples/options.h"
#include "samples/output_file.h"
#include "samples/step_log.h"

namespace stowage::samples {

// No output may replace the data or another output. Throws InvalidInput naming both flags.
void check_distinct(const Options& options);

// All of them opened before the work, so that a bad path is told at once. Throws InvalidInput.
struct Outputs {
  explicit Outputs(const Options& options)
      : plan("--plan-json", options.plan_file, Writing::whole),
        trace("--trace", options.plan_only ? "" : options.trace_file, Writing::whole),
        report("--report", options.plan_only ? "" : options.report_file, Writing::whole),
        weights("--weights", options.plan_only ? "" : options.weights_file, Writing::whole),
        exported(options),
        log(options.plan_only ? "" : options.log_file) {}
  OutputFile plan;
  OutputFile trace;
  OutputFile report;
  OutputFile weights;
  ExportedModel exported;
  StepLog log;
};

}  // namespace stowage::samples
