#include "samples/report/run_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/tokens/text_parts.h"
#include "tools/choices/model_spec.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

using nlohmann::json;

std::string seconds_with_share(double seconds, double of) {
  return fmt::format("{} ({:+.1f}%)", format_seconds(seconds), 100 * (seconds / of - 1));
}

// A diverged loss may be huge, and is printed in scientific notation.
std::string loss_text(double loss) {
  return std::abs(loss) < 1e6 ? fmt::format("{:.4f}", loss) : fmt::format("{:.3e}", loss);
}

// Returns whether small values could be seen on a logarithmic axis only.
bool spans_decades(const RunChart& chart) {
  constexpr double most_on_a_line = 100;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const RunLine& line : chart.lines) {
    for (const RunColumn& column : line.columns) {
      least = std::min(least, column.least);
      most = std::max(most, column.most);
    }
  }
  return least > 0 && most > most_on_a_line * least;
}

// Returns a number of a log's line; nothing if the value is no number.
std::optional<double> number_in(const nlohmann::json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? found->get<double>() : std::optional<double>();
}

RunHistory::Group time_group(const Setup& setup, const RunStatistics& run) {
  const Plan& plan = *setup.plan;
  const double step = run.step_seconds();
  RunHistory::Group group{
      "Measured time",
      {{"step", format_seconds(step), "mean, without the first two"},
       {"predicted", seconds_with_share(plan.predicted_step_seconds, step)},
       {"lower bound", format_seconds(plan.lower_bound_seconds), fmt::format("{} binds", plan.bound_by)},
       {"gap", fmt::format("{:.2f} × bound", step / plan.lower_bound_seconds)},
       {"measured stall", percent(run.stall_fraction()),
        "planned " + percent(plan.predicted_stall_seconds / plan.predicted_step_seconds)}}};
  if (!setup.planned_for.empty())
    group.facts.push_back({"planned for", setup.planned_for, "another machine"});
  return group;
}

RunHistory::Group bytes_group(const Setup& setup, const RunStatistics& run) {
  const Plan& plan = *setup.plan;
  const Bytes peak = setup.machine.budget_for(run.device_peak_bytes());
  const auto planned = [](Bytes bytes) { return "planned " + format_bytes(bytes); };
  return {"Measured bytes",
          {{"device peak", format_bytes(peak), planned(setup.peak)},
           {"of the need", share(peak, setup.need), format_bytes(setup.need)},
           {"in per step", format_bytes(run.h2d_bytes()), planned(plan.h2d_bytes)},
           {"out per step", format_bytes(run.d2h_bytes()), planned(plan.d2h_bytes)}}};
}

// Returns a line with one value in every step; empty unless the value is above 0, as a
// logarithmic axis needs it.
RunLine constant(const std::string& name, double value, const std::vector<RunColumn>& beside) {
  RunLine line{.name = name};
  if (!beside.empty() && value > 0)
    line.columns.push_back({beside.front().first, beside.back().last, value, value, value});
  return line;
}

}  // namespace

void ColumnLine::join(Column& column, const Column& other) {
  column.of.last = other.of.last;
  column.of.least = std::min(column.of.least, other.of.least);
  column.of.most = std::max(column.of.most, other.of.most);
  column.sum += other.sum;
  column.count += other.count;
}

void ColumnLine::halve() {
  width_ *= 2;
  std::vector<Column> joined;
  for (const Column& column : columns_) {
    const bool same =
        !joined.empty() && (joined.back().of.first - first_) / width_ == (column.of.first - first_) / width_;
    if (same)
      join(joined.back(), column);
    else
      joined.push_back(column);
  }
  columns_ = std::move(joined);
}

void ColumnLine::add(std::uint64_t step, double value) {
  if (!std::isfinite(value)) return;
  if (columns_.empty()) first_ = step;
  const auto in_last = [&] {
    return !columns_.empty() && (columns_.back().of.first - first_) / width_ == (step - first_) / width_;
  };
  while (!in_last() && columns_.size() >= most_columns) halve();
  const Column column{{step, step, value, value, value}, value, 1};
  if (in_last())
    join(columns_.back(), column);
  else
    columns_.push_back(column);
}

std::vector<RunColumn> ColumnLine::columns() const {
  std::vector<RunColumn> columns;
  for (const Column& column : columns_) {
    columns.push_back(column.of);
    // A rounded sum may leave the range.
    columns.back().mean =
        std::clamp(column.sum / static_cast<double>(column.count), column.of.least, column.of.most);
  }
  return columns;
}

void RunRecorder::add(const StepRecord& record) {
  const std::uint64_t step = record.report.step + 1;
  loss_.add(step, record.report.loss);
  rate_.add(step, record.learning_rate);
  if (record.report.grad_norm > 0) norm_.add(step, record.report.grad_norm);
  if (record.report.seconds > 0) seconds_.add(step, record.report.seconds);
}

void RunRecorder::add_evaluation(const std::string& name, std::uint64_t step, double value) {
  const auto found = std::find_if(evaluations_.begin(), evaluations_.end(),
                                  [&](const Evaluation& each) { return each.name == name; });
  Evaluation& evaluation = found == evaluations_.end() ? evaluations_.emplace_back() : *found;
  evaluation.name = name;
  evaluation.values.add(step, value);
}

void RunRecorder::add(const EvaluationRecord& record) {
  for (const auto& [name, value] : record.evaluation.values)
    if (name.ends_with("loss")) add_evaluation("evaluation: " + name, record.steps, value);
  evaluated_ = record;
  if (record.best.value_or(false)) best_ = record.steps;
}

void RunRecorder::add_logged(std::string_view text) {
  const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
  const auto step = line.find("step");
  if (!line.is_object() || step == line.end() || !step->is_number_unsigned()) return;
  const auto number = step->get<std::uint64_t>();
  if (const auto found = line.find("evaluation"); found != line.end() && found->is_object()) {
    EvaluationRecord record{.steps = number, .evaluation = {}};
    for (const auto& [name, value] : found->items())
      if (value.is_number()) record.evaluation.values.emplace_back(name, value.get<double>());
    record.best = line.value("best", json(false)) == json(true);
    return add(record);
  }
  if (line.contains("codes")) return;
  ++before_shown_;
  if (const auto loss = number_in(line, "loss")) loss_.add(number, *loss);
  if (const auto rate = number_in(line, "learning_rate")) rate_.add(number, *rate);
  if (const auto norm = number_in(line, "grad_norm"); norm && *norm > 0) norm_.add(number, *norm);
}

void RunRecorder::add_before(std::uint64_t steps, std::string_view log) {
  before_ = steps;
  for_each_line(log, [&](std::string_view line, std::size_t) { add_logged(line); });
}

RunHistory::Group RunRecorder::run_group(const Setup& setup, const RunStatistics& run) const {
  RunHistory::Group group{"Run"};
  if (run.steps() > 0) {
    const double tokens = static_cast<double>(setup.tokens_per_step());
    group.facts = {
        {"loss", loss_text(run.last_mean_loss()) + " nats",
         fmt::format("mean of the last {} steps", run.last_losses())},
        {"steps", grouped(run.steps()), "in " + format_seconds(run.seconds())},
        {"tokens", grouped(run.steps() * setup.tokens_per_step()),
         fmt::format("{} per second", grouped(static_cast<std::uint64_t>(tokens / run.step_seconds())))}};
  }
  if (before_ > 0)
    group.facts.push_back({"steps before", grouped(before_),
                           before_shown_ == 0 ? "not shown, as --log has none of them"
                                              : fmt::format("{} shown, from --log", grouped(before_shown_))});
  for (const auto& [name, value] : evaluated_.evaluation.values)
    group.facts.push_back(
        {"evaluation: " + name, loss_text(value), fmt::format("behind step {}", grouped(evaluated_.steps))});
  if (best_)
    group.facts.push_back({"best so far", fmt::format("step {}", grouped(*best_)), "least evaluation loss"});
  if (!stopped_.empty())
    group.facts.push_back({"stopped", fmt::format("after step {}", before_ + run.steps()), stopped_});
  return group;
}

RunChart RunRecorder::loss_chart() const {
  RunChart chart{.title = "loss"};
  chart.lines.push_back({.name = "training loss, nats", .columns = loss_.columns()});
  for (const Evaluation& each : evaluations_)
    chart.lines.push_back({.name = each.name, .points = true, .columns = each.values.columns()});
  chart.logarithmic = spans_decades(chart);
  return chart;
}

RunChart RunRecorder::time_chart(const Plan& plan) const {
  RunChart chart{.title = "step time", .logarithmic = true};
  chart.lines.push_back({.name = "measured", .columns = seconds_.columns()});
  const std::vector<RunColumn> measured = chart.lines.front().columns;
  chart.lines.push_back(constant("predicted", plan.predicted_step_seconds, measured));
  chart.lines.push_back(constant("lower bound", plan.lower_bound_seconds, measured));
  return chart;
}

RunHistory RunRecorder::history(const Setup& setup, const RunStatistics& run) const {
  RunHistory history{.failure = failure_};
  const RunHistory::Group group = run_group(setup, run);
  if (group.facts.empty()) return history;
  history.groups = {group};
  if (run.steps() > 0) {
    history.groups.push_back(time_group(setup, run));
    history.groups.push_back(bytes_group(setup, run));
  }
  if (!rows_.empty()) history.tables.push_back(table_of(rows_));
  if (noise_ && !noise_->tensors.empty()) history.tables.push_back(table_of(*noise_));
  history.charts = {
      loss_chart(),
      {.title = "learning rate", .lines = {{.name = "learning rate", .columns = rate_.columns()}}},
      {.title = "gradient norm",
       .logarithmic = true,
       .lines = {{.name = "before clipping", .columns = norm_.columns()}}},
      time_chart(*setup.plan)};
  return history;
}

std::string model_title(const Options& options) {
  return describe(ModelSpec{.family = options.family, .config = options.model});
}

std::string run_page(const Setup& setup, const RunStatistics& run, const RunRecorder& recorder) {
  return plan_report(*setup.graph, *setup.plan, setup.machine,
                     {.name = model_title(*setup.options),
                      .machine_name = setup.device,
                      .budget = setup.options->budget,
                      .run = recorder.history(setup, run)});
}

}  // namespace stowage::samples
