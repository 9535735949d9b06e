// The files that a run was asked for.
#pragma once

#include <functional>
#include <string>

#include "samples/options/options.h"
#include "samples/report/step_log.h"
#include "samples/run/init_export.h"
#include "src/base/output_file.h"
#include "stowage/graph.h"

namespace stowage::samples {

// No output may replace what is read (data, tokenizer, model, machine, checkpoints) or another output. Throws
// InvalidInput naming both flags.
void check_distinct(const Options& options);

// The output files, opened before the work, so that a bad path is reported at once. Throws InvalidInput.
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

// Reports outputs that cannot be written, and spares the training and the outputs behind them.
class Failures {
 public:
  explicit Failures(Program program) : program_(program) {}

  // Returns whether `action` came to its end. If it throws Error, prints that on stderr.
  bool spare(const std::function<void()>& action);
  bool any() const { return any_; }

 private:
  Program program_;
  bool any_ = false;
};

// The --weights file: one line of JSON, then the parameters' raw bytes, as the machine holds them.
//
//   {"format": "stowage-weights", "version": 1, "tensors": [{"name": …, "type": "f32", "shape": […],
//    "offset": …, "bytes": …}, …]}\n<bytes>
// Offsets count from the byte after the line's end; tensors are in the graph's order, without gaps.
using ReadTensor = std::function<std::vector<std::byte>(TensorId)>;

// Returns the first line, with its end.
std::string weights_index(const Graph& graph);

// Writes all parameters and commits the file.
void write_weights(OutputFile& file, const Graph& graph, const ReadTensor& read);

}  // namespace stowage::samples
