// The --log file: one JSON object per line and step, or comma-separated values where its name ends in .csv.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "samples/report/rank_rows.h"
#include "samples/task/code_noise.h"
#include "samples/task/task.h"
#include "src/base/output_file.h"
#include "stowage/cuda_device.h"
#include "stowage/engine.h"
#include "stowage/plan_report.h"

namespace stowage::samples {

// A step's report, and the facts that the engine does not know.
struct StepRecord {
  StepReport report;
  double learning_rate = 0;
  double tokens_per_second = 0;
  std::optional<AttentionUse> attention = {};  // the step's attention launches, on a card
  Bytes unpinned_bytes = 0;                    // Unpinned::bytes
  std::optional<LossScale> loss_scale = {};    // loss scale of the step, in fp16
};

// Returns the launches between two moments; refusals are those of the later moment.
AttentionUse launches_since(const AttentionUse& before, const AttentionUse& now);

// Returns a line without its end. Steps count from 1, as in the progress line. Doubles are written as the
// shortest text that reads back as the same double, and as null if they are no number.
std::string to_json_line(const StepRecord& record);

// An evaluation that was made after `steps` steps and took `seconds`.
struct EvaluationRecord {
  std::uint64_t steps = 0;
  Evaluation evaluation;
  double seconds = 0;
  std::optional<bool> best{};  // the evaluation's loss is the least so far; nullopt without --keep-best
  std::optional<std::uint64_t> since_best{};  // evaluations since the least loss; nullopt without --patience
  bool stops = false;                         // --patience ends the run here
};
// {"step": N, "evaluation": {…}, "seconds": X}, and where they are known "best": true or false,
// "since_best": N, and "stops": true. CSV has no columns for the last two.
std::string to_json_line(const EvaluationRecord& record);

// Return the records as rows of CSV, whose columns are always the same. Columns that do not apply, and values
// that are no number, are left empty. `measures`: names of the evaluation's values. `scaled`: the run has a
// loss scale, and the table has columns for it.
std::string csv_header(const std::vector<std::string>& measures, bool scaled = false);
std::string to_csv_line(const StepRecord& record, const std::vector<std::string>& measures);
std::string to_csv_line(const EvaluationRecord& record, bool scaled = false);

// Returns the length of the longest valid prefix of `log`: complete lines, steps ascending, each with its
// evaluations behind it, none beyond `completed`. Steps of a run without a log may be missing. Evaluations of
// the model that a run began with may come first.
std::uint64_t kept_bytes(std::string_view log, std::uint64_t completed);

// Does the same for CSV; a leading `header` line belongs to the prefix, and without it the prefix is empty.
std::uint64_t kept_bytes_of_csv(std::string_view log, std::uint64_t completed, std::string_view header);
// Returns rows with their header as lines of JSON that say the same, as far as they have values.
std::string json_lines_of_csv(std::string_view log, const std::vector<std::string>& measures,
                              bool scaled = false);

// Noise of coded tensors, for the weights after `steps` steps.
struct CodeNoiseRecord {
  std::uint64_t steps = 0;
  std::vector<CodeNoise> tensors;
  double seconds = 0;
};
// {"step": N, "codes": {tensor: {"decibels": X, "largest_error": Y}, …}, "seconds": Z}
std::string to_json_line(const CodeNoiseRecord& record);
// A text such as "43.1 to 45.6 dB, least h.0.attn.c_attn; largest error 0.031, of h.3.mlp.c_fc.pre".
std::string describe(const CodeNoiseRecord& record);
std::string when(const CodeNoiseRecord& record);  // "behind step 3"
RunTable table_of(const CodeNoiseRecord& record);

class StepLog {
 public:
  // Checks that the file can be written, and changes nothing yet. Empty path: logs nothing.
  explicit StepLog(const std::string& path)
      : csv_(path.ends_with(".csv")), file_("--log", path, Writing::growing) {}
  // If `completed` is above 0, keeps the log's lines of these steps and returns them as lines of JSON; else
  // starts an empty log. `measures`: Task::measures; `scaled` as for csv_header.
  std::string start(std::uint64_t completed = 0, const std::vector<std::string>& measures = {},
                    bool scaled = false);
  void write(const StepRecord& record) {
    write_line(csv_ ? to_csv_line(record, measures_) : to_json_line(record));
  }
  void write(const EvaluationRecord& record) {
    write_line(csv_ ? to_csv_line(record, scaled_) : to_json_line(record));
  }
  // CSV has no such rows. They come behind their step, and before the first one of each run.
  void write(const CodeNoiseRecord& record) {
    if (!csv_) write_line(to_json_line(record));
  }
  // Writes a row behind all steps of a run on several devices; CSV has no such rows. A resumed run drops them
  // from its log.
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
