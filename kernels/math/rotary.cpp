#include "kernels/math/rotary.h"

#include <cmath>

namespace stowage {
namespace {

constexpr double natural_log_of_2 = 0x1.62e42fefa39efp-1;

// The library's log and exp round differently with and without the processor's multiply-add: hence series.

// Requires x >= 1, finite. 2 artanh((m - 1) / (m + 1)) of the significand m, from 1 / sqrt(2) to sqrt(2).
double log_by_series(double x) {
  int power = 0;
  double significand = std::frexp(x, &power);
  if (significand < 0.70710678118654752) {
    significand *= 2;
    --power;
  }
  const double ratio = (significand - 1) / (significand + 1);
  const double square = ratio * ratio;
  double series = 0;
  for (int odd = 25; odd > 0; odd -= 2) series = series * square + 1.0 / odd;
  return power * natural_log_of_2 + 2 * ratio * series;
}

// Requires x in [-1000, 0].
double exp_by_series(double x) {
  const double power = std::floor(x / natural_log_of_2 + 0.5);
  const double rest = x - power * natural_log_of_2;
  double series = 1;
  for (int n = 16; n > 0; --n) series = series * (rest * (1.0 / n)) + 1;
  return std::ldexp(series, static_cast<int>(power));
}

// Llama 3: slow turns are divided by the factor, fast ones stay, and between them the change is gradual.
double scaled(double frequency, const RotaryBase& base) {
  constexpr double full_turn = 6.28318530717958647692;
  const double periods = static_cast<double>(base.original_positions) * frequency / full_turn;
  if (periods < base.low_frequency_factor) return frequency / base.factor;
  if (periods > base.high_frequency_factor) return frequency;
  const double fast =
      (periods - base.low_frequency_factor) / (base.high_frequency_factor - base.low_frequency_factor);
  return (1 - fast) * frequency / base.factor + fast * frequency;
}

}  // namespace

bool RotaryBase::valid() const {
  const auto at_least_1 = [](double x) { return std::isfinite(x) && x >= 1; };
  if (!at_least_1(theta)) return false;
  return !scaled ||
         (at_least_1(factor) && low_frequency_factor > 0 && low_frequency_factor < high_frequency_factor &&
          std::isfinite(high_frequency_factor) && original_positions > 0);
}

RotaryFrequencies rotary_frequencies(std::int64_t width, const RotaryBase& base) {
  const double log_of_theta = log_by_series(base.theta);
  RotaryFrequencies all;
  for (std::int64_t pair = 0; pair < width / 2; ++pair) {
    const double frequency =
        exp_by_series(-static_cast<double>(2 * pair) / static_cast<double>(width) * log_of_theta);
    all.values[pair] = static_cast<float>(base.scaled ? scaled(frequency, base) : frequency);
  }
  return all;
}

}  // namespace stowage
