// The --log file: one JSON object per line and step.
#pragma once

#include <string>

#include "samples/output_file.h"
#include "stowage/engine.h"

namespace stowage::samples {

// What is known of a step beside the engine's report.
struct StepRecord {
  StepReport report;
  double learning_rate = 0;
  double tokens_per_second = 0;
};

// One line without its end. Steps count from 1, as in the progress line. Doubles are written as the shortest
// text that reads back as the same double, and as null where they are no number.
std::string to_json_line(const StepRecord& record);

class StepLog {
 public:
  // Checks that the file can be written, and changes nothing yet. Empty path: logs nothing.
  explicit StepLog(const std::string& path) : file_("--log", path, Writing::growing) {}
  void start() { file_.start(); }
  void write(const StepRecord& record);  // flushed, so that a log can be followed
  void finish() { file_.commit(); }

 private:
  OutputFile file_;
};

}  // namespace stowage::samples
