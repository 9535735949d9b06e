// The learning rate of each step.
#pragma once

#include <cstdint>

namespace stowage::samples {

struct Schedule {
  double peak = 1e-3;
  std::uint64_t warmup = 30;  // steps of linear rise; the first step has peak / (warmup + 1)
  std::uint64_t steps = 1;    // of the whole run
  double final_share = 0.1;   // of the peak, reached by a half cosine at the last step
};

double learning_rate(const Schedule& schedule, std::uint64_t step);

}  // namespace stowage::samples
