// The --log file: one JSON object per line and step, or comma-separated values where its name ends in .csv.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "samples/report/rank_rows.h"
#include "samples/task/task.h"
#include "src/base/output_file.h"
#include "stowage/cuda_device.h"
#include "stowage/engine.h"

namespace stowage::samples {

// What is known of a step beside the engine's report.
struct StepRecord {
  StepReport report;
  double learning_rate = 0;
  double tokens_per_second = 0;
  std::optional<AttentionUse> attention = {};  // the step's launches, on a card
  Bytes unpinned_bytes = 0;                    // Unpinned::bytes
  std::optional<LossScale> loss_scale = {};    // with which the step was made, in fp16
};

// What was launched between two moments; refusals are those of the later one.
AttentionUse launches_since(const AttentionUse& before, const AttentionUse& now);

// One line without its end. Steps count from 1, as in the progress line. Doubles are written as the shortest
// text that reads back as the same double, and as null where they are no number.
std::string to_json_line(const StepRecord& record);

// One evaluation: made after `steps` steps, it took `seconds`.
struct EvaluationRecord {
  std::uint64_t steps = 0;
  Evaluation evaluation;
  double seconds = 0;
  std::optional<bool> best{};  // whether its loss is the least so far; nothing without --keep-best
};
// {"step": N, "evaluation": {…}, "seconds": X}, and "best": true or false where that is known.
std::string to_json_line(const EvaluationRecord& record);

// The same as rows of a table, whose columns are always these; those of the other kind of row are empty, and
// so is what is no number. `measures`: names of the evaluation's values. `scaled`: of a run with a loss
// scale, which has columns for it.
std::string csv_header(const std::vector<std::string>& measures, bool scaled = false);
std::string to_csv_line(const StepRecord& record, const std::vector<std::string>& measures);
std::string to_csv_line(const EvaluationRecord& record, bool scaled = false);

// How many bytes the lines take that a log begins with, as far as they are whole, of rising steps, each with
// its evaluations behind it, and of the first `completed` steps. Steps may be missing: of a run without a
// log. Evaluations may come first: of what a run began with.
std::uint64_t kept_bytes(std::string_view log, std::uint64_t completed);

// The same of a table with this header, which counts as kept where it stands first.
std::uint64_t kept_bytes_of_csv(std::string_view log, std::uint64_t completed, std::string_view header);
// Rows with their header as the lines of JSON that say the same, as far as they have values.
std::string json_lines_of_csv(std::string_view log, const std::vector<std::string>& measures,
                              bool scaled = false);

class StepLog {
 public:
  // Checks that the file can be written, and changes nothing yet. Empty path: logs nothing.
  explicit StepLog(const std::string& path)
      : csv_(path.ends_with(".csv")), file_("--log", path, Writing::growing) {}
  // A log that goes on keeps the lines of the `completed` steps that it begins with, and returns them as
  // lines of JSON; else it starts empty. `measures`: Task::measures; `scaled` as for csv_header.
  std::string start(std::uint64_t completed = 0, const std::vector<std::string>& measures = {},
                    bool scaled = false);
  void write(const StepRecord& record) {
    write_line(csv_ ? to_csv_line(record, measures_) : to_json_line(record));
  }
  void write(const EvaluationRecord& record) {
    write_line(csv_ ? to_csv_line(record, scaled_) : to_json_line(record));
  }
  // Behind all steps, of a run on several devices; a table has no such rows. A log that goes on drops them.
  void write(const RankRow& row) {
    if (!csv_) write_line(to_json_line(row));
  }
  void finish() { file_.commit(); }

 private:
  void write_line(const std::string& line);

  bool csv_;
  std::vector<std::string> measures_;
  bool scaled_ = false;
  OutputFile file_;
};

}  // namespace stowage::samples
