#include "samples/options/schedule.h"

#include <cmath>
#include <numbers>

namespace stowage::samples {
namespace {

// Returns what is left of the descent: 1 at the peak, 0 at the last step. `done`: from 0 to 1.
double left(Descent descent, double done) {
  switch (descent) {
    case Descent::cosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * done));
    case Descent::linear:
      return 1 - done;
    case Descent::constant:
      break;
  }
  return 1;
}

}  // namespace

std::string_view to_string(Descent descent) {
  switch (descent) {
    case Descent::cosine:
      return "cosine";
    case Descent::linear:
      return "linear";
    case Descent::constant:
      break;
  }
  return "constant";
}

std::optional<Descent> descent_from(std::string_view name) {
  for (const Descent descent : every_descent)
    if (to_string(descent) == name) return descent;
  return std::nullopt;
}

double learning_rate(const Schedule& schedule, std::uint64_t step) {
  if (step < schedule.warmup) {
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup + 1);
  }
  if (schedule.descent == Descent::constant) return schedule.peak;
  if (step + 1 >= schedule.steps)
    return schedule.peak * (schedule.warmup + 1 >= schedule.steps ? 1 : schedule.final_share);
  const double done =
      static_cast<double>(step - schedule.warmup) / static_cast<double>(schedule.steps - 1 - schedule.warmup);
  return schedule.peak * (schedule.final_share + (1 - schedule.final_share) * left(schedule.descent, done));
}

}  // namespace stowage::samples
