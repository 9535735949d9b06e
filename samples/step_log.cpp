#include "samples/step_log.h"

#include <fmt/format.h>

#include <cmath>

namespace stowage::samples {
namespace {

std::string exact(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

}  // namespace

std::string to_json_line(const StepRecord& record) {
  const StepReport& report = record.report;
  return fmt::format(
      R"({{"step": {}, "loss": {}, "grad_norm": {}, "learning_rate": {}, "tokens_per_second": {}, )"
      R"("device_peak_bytes": {}, "h2d_bytes": {}, "d2h_bytes": {}, "stall_fraction": {}}})",
      report.step + 1, exact(report.loss), exact(report.grad_norm), exact(record.learning_rate),
      exact(record.tokens_per_second), report.device_peak_bytes, report.h2d_bytes, report.d2h_bytes,
      exact(report.stall_fraction));
}

void StepLog::write(const StepRecord& record) {
  if (!file_.wanted()) return;
  file_.write(to_json_line(record) + '\n');
  file_.flush();
}

}  // namespace stowage::samples
