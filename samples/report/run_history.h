// The run that --report shows: every step's values, in a bounded number of columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "samples/report/rank_rows.h"
#include "samples/report/report.h"
#include "samples/report/step_log.h"
#include "stowage/plan_report.h"

namespace stowage::samples {

// Values by rising step. All columns cover the same number of steps, which doubles whenever there would be
// more of them than `most_columns`: then two at a time become one.
class ColumnLine {
 public:
  static constexpr std::size_t most_columns = 512;

  // Values that are not finite are left out.
  void add(std::uint64_t step, double value);
  std::vector<RunColumn> columns() const;

 private:
  struct Column {
    RunColumn of;  // all values but the mean
    double sum = 0;
    std::uint64_t count = 0;
  };
  static void join(Column& column, const Column& other);
  void halve();

  std::vector<Column> columns_;
  std::uint64_t first_ = 0;
  std::uint64_t width_ = 1;  // steps of a column
};

class RunRecorder {
 public:
  void add(const StepRecord& record);
  // Adds a value that is measured now and then: points of this name beside the training loss. Steps count
  // from 1.
  void add_evaluation(const std::string& name, std::uint64_t step, double value);
  // Adds the values whose names end in "loss".
  void add(const EvaluationRecord& record);
  // Replaces the noise of earlier calls.
  void add(const CodeNoiseRecord& record) { noise_ = record; }
  // Adds the steps that a resumed run has made before: their number, and what --log has kept of them. Step
  // times are left out: they were those of another plan.
  void add_before(std::uint64_t steps, std::string_view log);
  // Sets a row for each device of a run that has several.
  void set_rows(const std::vector<RankRow>& rows) { rows_ = rows; }
  // Set why the run ended before its last step: it was asked to stop, or it failed.
  void stop(std::string why) { stopped_ = std::move(why); }
  void fail(std::string why) { failure_ = std::move(why); }

  RunHistory history(const Setup& setup, const RunStatistics& run) const;

 private:
  struct Evaluation {
    std::string name;
    ColumnLine values;
  };
  void add_logged(std::string_view text);
  RunHistory::Group run_group(const Setup& setup, const RunStatistics& run) const;
  RunChart loss_chart() const;
  RunChart time_chart(const Plan& plan) const;

  ColumnLine loss_;
  ColumnLine rate_;
  ColumnLine norm_;
  ColumnLine seconds_;
  std::vector<Evaluation> evaluations_;  // evaluations by name, in the order of their first value
  EvaluationRecord evaluated_;           // the last evaluation
  std::optional<CodeNoiseRecord> noise_;
  std::optional<std::uint64_t> best_;  // the step with the least loss, with --keep-best
  std::uint64_t before_ = 0;           // steps that an earlier run made
  std::uint64_t before_shown_ = 0;     // steps of an earlier run that its log has
  std::vector<RankRow> rows_;
  std::string stopped_;
  std::string failure_;
};

// Returns the model's kind and sizes, as `stowage plan` prints them.
std::string model_title(const Options& options);

// The page of --report: the run, and below it its plan.
std::string run_page(const Setup& setup, const RunStatistics& run, const RunRecorder& recorder);

}  // namespace stowage::samples
