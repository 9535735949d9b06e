#include "samples/step_log.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace stowage::samples {
namespace {

std::string exact(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

std::string read_log(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// 0 where the line is none of a log.
std::uint64_t step_of(std::string_view line) {
  constexpr std::string_view begin = R"({"step": )";
  if (!line.starts_with(begin) || !line.ends_with('}')) return 0;
  std::uint64_t step = 0;
  std::from_chars(line.data() + begin.size(), line.data() + line.size(), step);
  return step;
}

std::string attention_text(const StepRecord& record) {
  if (!record.attention) return {};
  return fmt::format(R"(, "attention": {{"cudnn": {}, "own": {}, "plain": {}}})", record.attention->cudnn,
                     record.attention->own, record.attention->plain);
}

}  // namespace

AttentionUse launches_since(const AttentionUse& before, const AttentionUse& now) {
  return {now.cudnn - before.cudnn, now.own - before.own, now.plain - before.plain, now.refusals};
}

std::string to_json_line(const StepRecord& record) {
  const StepReport& report = record.report;
  return fmt::format(
      R"({{"step": {}, "loss": {}, "grad_norm": {}, "learning_rate": {}, "tokens_per_second": {}, )"
      R"("device_peak_bytes": {}, "h2d_bytes": {}, "d2h_bytes": {}, "stall_fraction": {}, "between_seconds": {}{}}})",
      report.step + 1, exact(report.loss), exact(report.grad_norm), exact(record.learning_rate),
      exact(record.tokens_per_second), report.device_peak_bytes, report.h2d_bytes, report.d2h_bytes,
      exact(report.stall_fraction), exact(report.idle_seconds), attention_text(record));
}

std::string to_json_line(std::uint64_t steps, const Evaluation& evaluation, double seconds) {
  std::string values;
  for (const auto& [name, value] : evaluation.values)
    values += fmt::format(R"({}"{}": {})", values.empty() ? "" : ", ", name, exact(value));
  return fmt::format(R"({{"step": {}, "evaluation": {{{}}}, "seconds": {}}})", steps, values, exact(seconds));
}

std::uint64_t kept_bytes(std::string_view log, std::uint64_t completed) {
  std::size_t kept = 0;
  for (std::uint64_t next = 0;;) {
    const std::size_t end = log.find('\n', kept);
    if (end == std::string_view::npos) return kept;
    const std::string_view line = log.substr(kept, end - kept);
    const std::uint64_t step = step_of(line);
    // An evaluation comes behind its step, and any number of times.
    const bool evaluation = line.find(R"(, "evaluation": {)") != std::string_view::npos;
    if (step == 0 || step > completed || (evaluation && step + 1 != next)) return kept;
    if (!evaluation && step < next) return kept;
    next = step + 1;
    kept = end + 1;
  }
}

std::string StepLog::start(std::uint64_t completed) {
  if (!file_.wanted()) return {};
  std::error_code error;
  std::string kept;
  if (completed > 0 && std::filesystem::is_regular_file(file_.path(), error)) {
    kept = read_log(file_.path());
    kept.resize(kept_bytes(kept, completed));
  }
  file_.start(kept.size());
  return kept;
}

void StepLog::write_line(const std::string& line) {
  if (!file_.wanted()) return;
  file_.write(line + '\n');
  file_.flush();
}

}  // namespace stowage::samples
