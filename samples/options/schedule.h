// The learning rate of each step.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stowage::samples {

// How the rate goes from its peak, behind the warm-up, to its last value.
enum class Descent : std::uint8_t {
  cosine,    // falls by half a cosine (Loshchilov & Hutter, "SGDR", without restarts)
  linear,    // falls in a straight line
  constant,  // does not fall
};
inline constexpr Descent every_descent[] = {Descent::cosine, Descent::linear, Descent::constant};
std::string_view to_string(Descent descent);  // returns the enumerator's name
std::optional<Descent> descent_from(std::string_view name);

struct Schedule {
  double peak = 1e-3;
  std::uint64_t warmup = 30;  // steps of linear rise; the first step has peak / (warmup + 1)
  std::uint64_t steps = 1;    // steps of the whole run
  Descent descent = Descent::cosine;
  double final_share = 0.1;  // share of the peak that the last step has; with `constant` it counts as 1
};

double learning_rate(const Schedule& schedule, std::uint64_t step);

}  // namespace stowage::samples
