#include "samples/run/patience.h"

#include <fmt/format.h>

#include <cmath>

namespace stowage::samples {

void Patience::add(std::uint64_t step, double loss) {
  if (allowed_ == 0) return;
  if (std::isfinite(loss) && (!least_ || loss < least_->score))
    least_ = LeastScore{loss, step, 0};
  else if (least_)
    ++least_->since;
}

std::string Patience::text() const {
  if (!least_) return {};
  return fmt::format("{} evaluation{} in a row without a lower loss than {:.4f}, of step {}", least_->since,
                     least_->since == 1 ? "" : "s", least_->score, least_->step);
}

}  // namespace stowage::samples
