// The --log file: one JSON object per line and step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "samples/output_file.h"
#include "samples/task.h"
#include "stowage/cuda_device.h"
#include "stowage/engine.h"

namespace stowage::samples {

// What is known of a step beside the engine's report.
struct StepRecord {
  StepReport report;
  double learning_rate = 0;
  double tokens_per_second = 0;
  std::optional<AttentionUse> attention = {};  // the step's launches, on a card
};

// What was launched between two moments; refusals are those of the later one.
AttentionUse launches_since(const AttentionUse& before, const AttentionUse& now);

// One line without its end. Steps count from 1, as in the progress line. Doubles are written as the shortest
// text that reads back as the same double, and as null where they are no number.
std::string to_json_line(const StepRecord& record);

// {"step": N, "evaluation": {…}, "seconds": X}: what was measured behind the first `steps` steps, in so many
// seconds.
std::string to_json_line(std::uint64_t steps, const Evaluation& evaluation, double seconds);

// How many bytes the lines take that a log begins with, as far as they are whole, of rising steps, each with
// its evaluations behind it, and of the first `completed` steps. Steps may be missing: of a run without a
// log.
std::uint64_t kept_bytes(std::string_view log, std::uint64_t completed);

class StepLog {
 public:
  // Checks that the file can be written, and changes nothing yet. Empty path: logs nothing.
  explicit StepLog(const std::string& path) : file_("--log", path, Writing::growing) {}
  // A log that goes on keeps the lines of the `completed` steps that it begins with, and returns them; else
  // it starts empty.
  std::string start(std::uint64_t completed = 0);
  void write(const StepRecord& record) { write_line(to_json_line(record)); }
  void write(std::uint64_t steps, const Evaluation& evaluation, double seconds) {
    write_line(to_json_line(steps, evaluation, seconds));
  }
  void finish() { file_.commit(); }

 private:
  void write_line(const std::string& line);  // flushed, so that a log can be followed

  OutputFile file_;
};

}  // namespace stowage::samples
