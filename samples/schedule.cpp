#include "samples/schedule.h"

#include <cmath>
#include <numbers>

namespace stowage::samples {

double learning_rate(const Schedule& schedule, std::uint64_t step) {
  if (step < schedule.warmup) {
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup + 1);
  }
  if (step + 1 >= schedule.steps)
    return schedule.peak * (schedule.warmup + 1 >= schedule.steps ? 1 : schedule.final_share);
  const double done =
      static_cast<double>(step - schedule.warmup) / static_cast<double>(schedule.steps - 1 - schedule.warmup);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * done));
  return schedule.peak * (schedule.final_share + (1 - schedule.final_share) * cosine);
}

}  // namespace stowage::samples
