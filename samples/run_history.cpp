#include "samples/run_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/cli/tally.h"
#include "src/cli/text.h"

namespace stowage::samples {
namespace {

std::string seconds_with_share(double seconds, double of) {
  return fmt::format("{} ({:+.1f}%)", format_seconds(seconds), 100 * (seconds / of - 1));
}

RunHistory::Group run_group(const Setup& setup, const RunStatistics& run) {
  const double tokens = static_cast<double>(setup.tokens_per_step());
  return {"Run",
          {{"loss", fmt::format("{:.4f} nats", run.last_mean_loss()),
            fmt::format("mean of the last {} steps", run.last_losses())},
           {"steps", grouped(run.steps()), "in " + format_seconds(run.seconds())},
           {"tokens", grouped(run.steps() * setup.tokens_per_step()),
            fmt::format("{} per second", grouped(static_cast<std::uint64_t>(tokens / run.step_seconds())))}}};
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
       {"stall", fmt::format("{:.1f}%", 100 * run.stall_fraction())}}};
  if (!setup.planned_for.empty())
    group.facts.push_back({"planned for", setup.planned_for, "another machine"});
  return group;
}

RunHistory::Group bytes_group(const Setup& setup, const RunStatistics& run) {
  const Plan& plan = *setup.plan;
  const auto planned = [](Bytes bytes) { return "planned " + format_bytes(bytes); };
  return {"Measured bytes",
          {{"device peak", format_bytes(run.device_peak_bytes()), planned(plan.device_peak_bytes)},
           {"of the need", share(run.device_peak_bytes(), setup.need), format_bytes(setup.need)},
           {"in per step", format_bytes(run.h2d_bytes()), planned(plan.h2d_bytes)},
           {"out per step", format_bytes(run.d2h_bytes()), planned(plan.d2h_bytes)}}};
}

// The same value in every step; above 0, for a logarithmic axis.
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

RunChart RunRecorder::loss_chart() const {
  RunChart chart{.title = "loss"};
  chart.lines.push_back({.name = "training loss, nats", .columns = loss_.columns()});
  for (const Evaluation& each : evaluations_)
    chart.lines.push_back({.name = each.name, .points = true, .columns = each.values.columns()});
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
  RunHistory history;
  if (run.steps() == 0) return history;
  history.groups = {run_group(setup, run), time_group(setup, run), bytes_group(setup, run)};
  history.charts = {
      loss_chart(),
      {.title = "learning rate", .lines = {{.name = "learning rate", .columns = rate_.columns()}}},
      {.title = "gradient norm",
       .logarithmic = true,
       .lines = {{.name = "before clipping", .columns = norm_.columns()}}},
      time_chart(*setup.plan)};
  return history;
}

std::string run_page(const Setup& setup, const RunStatistics& run, const RunRecorder& recorder) {
  const GptConfig& model = setup.options->model;
  return plan_report(*setup.graph, *setup.plan, setup.machine,
                     {.name = fmt::format("GPT with {} layers, width {}, {} parameters", model.layers,
                                          model.width, grouped(parameter_count(*setup.graph))),
                      .machine_name = setup.device,
                      .budget = setup.options->budget,
                      .run = recorder.history(setup, run)});
}

}  // namespace stowage::samples
