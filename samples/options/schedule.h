// The learning rate of each step.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stowage::samples {

// How the rate goes from its peak, behind the warm-up, to its last value.
enum class Descent : std::uint8_t {
  cosine,    // half a cosine (Loshchilov & Hutter, "SGDR", without restarts)
  linear,    // a straight line
  constant,  // not at all
};
inline constexpr Descent every_descent[] = {Descent::cosine, Descent::linear, Descent::constant};
std::string_view to_string(Descent descent);  // as the enumerator is called
std::optional<Descent> descent_from(std::string_view name);

struct Schedule {
  double peak = 1e-3;
  std::uint64_t warmup = 30;  // steps of linear rise; the first step has peak / (warmup + 1)
  std::uint64_t steps = 1;    // of the whole run
  Descent descent = Descent::cosine;
  double final_share = 0.1;  // of the peak, reached at the last step; 1 with `constant`, whatever it says
};

double learning_rate(const Schedule& schedule, std::uint64_t step);

}  // namespace stowage::samples
