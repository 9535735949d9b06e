#include "samples/report/step_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "src/tokens/text_parts.h"

namespace stowage::samples {
namespace {

std::string exact(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

// Pairs of a name and its value as JSON text.
using Fields = std::vector<std::pair<std::string, std::string>>;

Fields fields_of(const StepRecord& record) {
  const StepReport& report = record.report;
  return {{"step", fmt::format("{}", report.step + 1)},
          {"loss", exact(report.loss)},
          {"grad_norm", exact(report.grad_norm)},
          {"learning_rate", exact(record.learning_rate)},
          {"tokens_per_second", exact(record.tokens_per_second)},
          {"device_peak_bytes", fmt::format("{}", report.device_peak_bytes)},
          {"h2d_bytes", fmt::format("{}", report.h2d_bytes)},
          {"d2h_bytes", fmt::format("{}", report.d2h_bytes)},
          {"unpinned_bytes", fmt::format("{}", record.unpinned_bytes)},
          {"stall_fraction", exact(report.stall_fraction)},
          {"between_seconds", exact(report.idle_seconds)},
          {"clip_scale", exact(report.clip_scale)},
          {"speculated_updates", fmt::format("{}", report.speculated_updates)}};
}
constexpr std::size_t always_in_steps =
    5;  // the column of `device_peak_bytes`, which has a value in each step

Fields attention_fields(const AttentionUse& use) {
  return {{"cudnn", fmt::format("{}", use.cudnn)},
          {"own", fmt::format("{}", use.own)},
          {"plain", fmt::format("{}", use.plain)}};
}

// Counts the steps that were skipped so far, this one among them.
Fields scale_fields(const LossScale& scale, bool overflowed) {
  return {{"loss_scale", exact(scale.scale)},
          {"skipped_steps", fmt::format("{}", next(scale, overflowed).skipped_steps)}};
}

std::string json_object(const Fields& fields) {
  std::string text;
  for (const auto& [name, value] : fields)
    text += fmt::format(R"({}"{}": {})", text.empty() ? "" : ", ", name, value);
  return '{' + text + '}';
}

std::string cells(const Fields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) text += ',' + (value == "null" ? "" : value);
  return text.substr(1);
}

std::vector<std::string> columns_of(const std::vector<std::string>& measures, bool scaled) {
  std::vector<std::string> names;
  for (const auto& [name, value] : fields_of({})) names.push_back(name);
  for (const auto& [name, value] : attention_fields({})) names.push_back("attention_" + name);
  if (scaled)
    for (const auto& [name, value] : scale_fields({}, false)) names.push_back(name);
  for (const std::string& name : measures) names.push_back("evaluation_" + name);
  names.insert(names.end(), {"evaluation_seconds", "best"});
  return names;
}
std::size_t step_columns(bool scaled) { return columns_of({}, scaled).size() - 2; }

std::string read_log(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A line's step and kind. A line of an evaluation or of codes may have step 0: of the model that the run
// began with.
enum class LineKind : std::uint8_t { step, evaluation, codes };
struct Logged {
  std::uint64_t step = 0;
  LineKind kind = LineKind::step;
};

std::optional<Logged> logged_json(std::string_view line) {
  constexpr std::string_view begin = R"({"step": )";
  if (!line.starts_with(begin) || !line.ends_with('}')) return {};
  const auto has = [&](std::string_view member) { return line.find(member) != std::string_view::npos; };
  Logged logged;
  if (has(R"(, "evaluation": {)")) logged.kind = LineKind::evaluation;
  if (has(R"(, "codes": {)")) logged.kind = LineKind::codes;
  const auto [end, error] =
      std::from_chars(line.data() + begin.size(), line.data() + line.size(), logged.step);
  if (error != std::errc()) return {};
  return logged;
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> result;
  for (std::size_t begin = 0;;) {
    const std::size_t end = line.find(',', begin);
    result.push_back(line.substr(begin, end - begin));
    if (end == std::string_view::npos) return result;
    begin = end + 1;
  }
}

std::optional<Logged> logged_csv(std::string_view line, std::size_t columns) {
  const std::vector<std::string_view> row = cells_of(line);
  Logged logged;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), logged.step);
  if (row.size() != columns || error != std::errc() || end != row[0].data() + row[0].size()) return {};
  if (row[always_in_steps].empty()) logged.kind = LineKind::evaluation;
  return logged;
}

// `logged`: returns a line's step and kind; nothing if it is not a log's line.
template <class Reader>
std::size_t kept_lines(std::string_view log, std::size_t begin, std::uint64_t completed, Reader logged) {
  std::size_t kept = begin;
  for (std::optional<std::uint64_t> last;;) {
    const std::size_t end = log.find('\n', kept);
    if (end == std::string_view::npos) return kept;
    const std::optional<Logged> line = logged(log.substr(kept, end - kept));
    if (!line || line->step > completed) return kept;
    // An evaluation comes behind its step, or later, and any number of times. Codes come anywhere: a run that
    // goes on writes them before its first step, and its log may lack the steps before.
    const bool is_step = line->kind == LineKind::step;
    const bool follows =
        !last || line->kind == LineKind::codes || (is_step ? line->step > *last : line->step <= *last);
    if (!follows || (is_step && line->step == 0)) return kept;
    last = std::max(last.value_or(0), line->step);
    kept = end + 1;
  }
}

}  // namespace

AttentionUse launches_since(const AttentionUse& before, const AttentionUse& now) {
  return {now.cudnn - before.cudnn, now.own - before.own, now.plain - before.plain, now.refusals};
}

std::string to_json_line(const StepRecord& record) {
  Fields fields = fields_of(record);
  if (record.attention) fields.emplace_back("attention", json_object(attention_fields(*record.attention)));
  if (record.loss_scale)
    for (auto& field : scale_fields(*record.loss_scale, record.report.overflowed))
      fields.push_back(std::move(field));
  return json_object(fields);
}

std::string to_json_line(const EvaluationRecord& record) {
  Fields values;
  for (const auto& [name, value] : record.evaluation.values) values.emplace_back(name, exact(value));
  Fields fields = {{"step", fmt::format("{}", record.steps)},
                   {"evaluation", json_object(values)},
                   {"seconds", exact(record.seconds)}};
  if (record.best) fields.emplace_back("best", *record.best ? "true" : "false");
  if (record.since_best) fields.emplace_back("since_best", fmt::format("{}", *record.since_best));
  if (record.stops) fields.emplace_back("stops", "true");
  return json_object(fields);
}

std::string to_json_line(const CodeNoiseRecord& record) {
  Fields tensors;
  for (const auto& [name, decibels, error] : record.tensors)
    tensors.emplace_back(name, json_object({{"decibels", exact(decibels)}, {"largest_error", exact(error)}}));
  return json_object({{"step", fmt::format("{}", record.steps)},
                      {"codes", json_object(tensors)},
                      {"seconds", exact(record.seconds)}});
}

std::string describe(const CodeNoiseRecord& record) {
  const auto& all = record.tensors;
  if (all.empty()) return "none: no activation that backward needs is large enough";
  // What is not finite is the worst.
  const auto by_decibels = [](const CodeNoise& a, const CodeNoise& b) {
    return !std::isnan(b.decibels) && (std::isnan(a.decibels) || a.decibels < b.decibels);
  };
  const auto by_error = [](const CodeNoise& a, const CodeNoise& b) {
    return !std::isnan(a.largest_error) && !(b.largest_error <= a.largest_error);
  };
  const auto [least, most] = std::minmax_element(all.begin(), all.end(), by_decibels);
  const auto worst = std::max_element(all.begin(), all.end(), by_error);
  return fmt::format("{:.1f} to {:.1f} dB, least {}; largest error {:.3g}, of {}", least->decibels,
                     most->decibels, least->tensor, worst->largest_error, worst->tensor);
}

std::string when(const CodeNoiseRecord& record) {
  return record.steps == 0 ? "before the first step" : fmt::format("behind step {}", record.steps);
}

RunTable table_of(const CodeNoiseRecord& record) {
  RunTable table{.title = "Coded activations, " + when(record),
                 .columns = {"tensor", "signal to noise", "largest error"},
                 .rows = {}};
  for (const auto& [name, decibels, error] : record.tensors)
    table.rows.push_back({name, fmt::format("{:.2f} dB", decibels), fmt::format("{:.3g}", error)});
  return table;
}

std::string csv_header(const std::vector<std::string>& measures, bool scaled) {
  return fmt::format("{}", fmt::join(columns_of(measures, scaled), ","));
}

std::string to_csv_line(const StepRecord& record, const std::vector<std::string>& measures) {
  const std::string attention = record.attention ? cells(attention_fields(*record.attention)) : ",,";
  const std::string scale =
      record.loss_scale ? ',' + cells(scale_fields(*record.loss_scale, record.report.overflowed)) : "";
  return cells(fields_of(record)) + ',' + attention + scale + std::string(measures.size() + 2, ',');
}

std::string to_csv_line(const EvaluationRecord& record, bool scaled) {
  Fields values;
  for (const auto& [name, value] : record.evaluation.values) values.emplace_back(name, exact(value));
  values.emplace_back("seconds", exact(record.seconds));
  values.emplace_back("best", !record.best ? "" : *record.best ? "true" : "false");
  return fmt::format("{}{}{}", record.steps, std::string(step_columns(scaled), ','), cells(values));
}

std::uint64_t kept_bytes(std::string_view log, std::uint64_t completed) {
  return kept_lines(log, 0, completed, logged_json);
}

std::uint64_t kept_bytes_of_csv(std::string_view log, std::uint64_t completed, std::string_view header) {
  if (!log.starts_with(header) || log.substr(header.size(), 1) != "\n") return 0;
  const auto columns = static_cast<std::size_t>(std::count(header.begin(), header.end(), ',')) + 1;
  return kept_lines(log, header.size() + 1, completed,
                    [&](std::string_view line) { return logged_csv(line, columns); });
}

std::string json_lines_of_csv(std::string_view log, const std::vector<std::string>& measures, bool scaled) {
  const std::vector<std::string> columns = columns_of(measures, scaled);
  const std::size_t first_measure = step_columns(scaled);
  std::string lines;
  for_each_line(log, [&](std::string_view line, std::size_t number) {
    const std::optional<Logged> logged = logged_csv(line, columns.size());
    if (number == 1 || !logged) return;
    const std::vector<std::string_view> row = cells_of(line);
    Fields step, evaluation;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const bool measured = i >= first_measure && i < first_measure + measures.size();
      if (!row[i].empty() && measured) evaluation.emplace_back(measures[i - first_measure], row[i]);
      if (!row[i].empty() && !measured) step.emplace_back(columns[i], row[i]);
    }
    if (logged->kind == LineKind::evaluation) step.emplace_back("evaluation", json_object(evaluation));
    lines += json_object(step) + '\n';
  });
  return lines;
}

std::string StepLog::start(std::uint64_t completed, const std::vector<std::string>& measures, bool scaled) {
  if (!file_.wanted()) return {};
  measures_ = measures;
  scaled_ = scaled;
  const std::string header = csv_header(measures, scaled);
  std::error_code error;
  std::string kept;
  if (completed > 0 && std::filesystem::is_regular_file(file_.path(), error)) {
    kept = read_log(file_.path());
    kept.resize(csv_ ? kept_bytes_of_csv(kept, completed, header) : kept_bytes(kept, completed));
  }
  file_.start(kept.size());
  if (csv_ && kept.empty()) write_line(header);
  return csv_ ? json_lines_of_csv(kept, measures, scaled) : kept;
}

void StepLog::write_line(const std::string& line) {
  if (!file_.wanted()) return;
  file_.write(line + '\n');
}

}  // namespace stowage::samples
