#include "samples/report/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/console/text.h"

namespace stowage::samples {
namespace {

constexpr double refresh_seconds = 0.2;  // seconds between rewrites of a terminal's line
constexpr double line_seconds = 10;      // seconds between lasting lines
constexpr std::uint64_t lines_per_run = 10;

}  // namespace

std::string progress_line(const ProgressWindow& window) {
  const int width = static_cast<int>(std::to_string(window.steps).size());
  const std::string budget = window.budget == unlimited ? "" : "/" + format_bytes(window.budget);
  const std::string norm =
      std::isfinite(window.grad_norm) ? fmt::format("{:.3f}", window.grad_norm) : "overflow";
  return fmt::format(
      "step {:>{}}/{}  loss {:.4f}  norm {}  {} tok/s  mem {}{}  in {:.2f} out {:.2f} GB/s  stall "
      "{:.1f}%",
      window.step, width, window.steps, window.loss, norm,
      grouped(static_cast<std::uint64_t>(window.tokens_per_second)), format_bytes(window.peak), budget,
      window.h2d_bytes_per_second / 1e9, window.d2h_bytes_per_second / 1e9, 100 * window.stall_fraction);
}

ProgressWindow Progress::window() const {
  const double seconds = std::max(seconds_, 1e-9);
  const auto count = static_cast<double>(count_);
  return {.step = done_,
          .steps = options_.steps,
          .loss = loss_ / count,
          .grad_norm = last_.grad_norm,
          .tokens_per_second = count * static_cast<double>(options_.tokens_per_step) / seconds,
          .peak = options_.machine.budget_for(last_.device_peak_bytes),
          .budget = options_.budget,
          .h2d_bytes_per_second = static_cast<double>(h2d_) / seconds,
          .d2h_bytes_per_second = static_cast<double>(d2h_) / seconds,
          .stall_fraction = stall_ / seconds};
}

void Progress::restart() {
  count_ = 0;
  seconds_ = loss_ = stall_ = 0;
  h2d_ = d2h_ = 0;
}

std::string Progress::add(const StepReport& report) {
  ++done_;
  ++count_;
  last_ = report;
  seconds_ += report.seconds;
  loss_ += report.loss;
  stall_ += report.seconds * report.stall_fraction;
  h2d_ += report.h2d_bytes;
  d2h_ += report.d2h_bytes;

  const std::uint64_t every = std::max<std::uint64_t>(1, options_.steps / lines_per_run);
  const bool lasting = done_ == options_.first_step + 1 || done_ == options_.steps || done_ % every == 0;
  const bool terminal = options_.columns > 0;
  if (!lasting && seconds_ < (terminal ? refresh_seconds : line_seconds)) return {};

  std::string line = progress_line(window());
  restart();
  if (!terminal) return line + '\n';
  // The line is cut, since a line that wraps could not be rewritten.
  if (!lasting) line.resize(std::min(line.size(), static_cast<std::size_t>(options_.columns - 1)));
  open_ = !lasting;
  return "\r\033[K" + line + (lasting ? "\n" : "");
}

std::string Progress::finish() {
  const bool was_open = open_;
  open_ = false;
  return was_open ? "\n" : "";
}

}  // namespace stowage::samples
