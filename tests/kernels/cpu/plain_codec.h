// The codec of kernels/cpu/codec.h again, an element at a time: levels in a table, rounding by nearbyint, and
// groups of one kind on demand.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "stowage/codec.h"

namespace stowage::cpu::test {

enum class Kinds { both, uniform, piecewise };

struct PlainGroup {
  int scale = 0, place = 0;
  std::vector<int> codes;
  std::vector<float> decoded;  // in f32
};

// The levels of a header whose scale is `top`.
struct PlainUniform {
  int bits;
  float base, step, inverse;

  PlainUniform(int bits_of_code, float top, int place) : bits(bits_of_code) {
    const int seven = place % 128;
    const float t = static_cast<float>(seven < 64 ? seven : seven - 128) / 64;
    const float end = place < 128 ? top : -top;
    base = t * end;
    step = (1 - t) * end / static_cast<float>((1 << bits) - 1);
    inverse = 1 / step;
  }
  std::vector<float> levels() const {
    std::vector<float> all;
    for (int code = 0; code < 1 << bits; ++code) {
      const float above = static_cast<float>(code) * step;
      all.push_back(base + above);
    }
    return all;
  }
  int code(float value) const {
    return std::clamp(static_cast<int>(std::nearbyint((value - base) * inverse)), 0, (1 << bits) - 1);
  }
};

struct PlainPiecewise {
  int bits, half;
  float inner_step, outer_base, outer_step, inner_inverse, outer_inverse;

  PlainPiecewise(int bits_of_code, float top, int place) : bits(bits_of_code), half(1 << (bits - 2)) {
    const auto h = static_cast<float>(half);
    const float breakpoint = top * static_cast<float>(place + 1) / 512;
    inner_step = breakpoint / h;
    outer_step = (top - breakpoint) / (h - 0.5F);
    outer_base = top - (2 * h - 1) * outer_step;
    inner_inverse = 1 / inner_step;
    outer_inverse = 1 / outer_step;
  }
  std::vector<float> levels() const {
    std::vector<float> all;
    for (const float sign : {1.0F, -1.0F}) {
      for (int i = 0; i < 2 * half; ++i) {
        const float above = static_cast<float>(i) * outer_step;
        all.push_back(sign * std::max((static_cast<float>(i) + 0.5F) * inner_step, outer_base + above));
      }
    }
    return all;
  }
  int code(float value) const {
    const float size = std::abs(value);
    const float inner = size * inner_inverse - 0.5F, outer = (size - outer_base) * outer_inverse;
    const int i = std::min(static_cast<int>(std::nearbyint(std::min(inner, outer))), 2 * half - 1);
    return std::signbit(value) ? i + 2 * half : i;
  }
};

// One group of 1 to 256 values.
class PlainCodec {
 public:
  PlainCodec(CodeBits bits, const std::vector<float>& values, Kinds kinds = Kinds::both)
      : bits_(static_cast<int>(bits)), count_(values.size()), values_(values) {
    values_.resize(256, values.back());
    for (const float value : values_) {
      finite_ = finite_ && std::isfinite(value);
      largest_ = std::max(largest_, std::abs(value));
    }
    if (!is_searched()) return;
    int exponent = 0;
    std::frexp(largest_, &exponent);  // from 1/2 to 1, times 2^exponent
    power_ = std::min(exponent - 1, 126);
    scaled_ = values_;
    for (float& value : scaled_) value = std::ldexp(value, -power_);
    if (kinds != Kinds::piecewise) search_uniform();
    if (kinds != Kinds::uniform) search_piecewise(kinds == Kinds::piecewise);
  }

  PlainGroup group() const {
    PlainGroup result{best_.scale, best_.place, {}, {}};
    if (!is_searched()) {
      result.scale = finite_ ? 0 : 0x7f80;
      result.codes.assign(count_, 0);
      result.decoded.assign(count_, finite_ ? 0.0F : std::numeric_limits<float>::quiet_NaN());
    } else if (best_.scale >= 0x8000) {
      fill(PlainPiecewise(bits_, top(best_.scale), best_.place), result);
    } else {
      fill(PlainUniform(bits_, top(best_.scale), best_.place), result);
    }
    return result;
  }

 private:
  struct Best {
    int scale, place;
    float error;
  };

  bool is_searched() const { return finite_ && largest_ >= std::numeric_limits<float>::min(); }

  static int scale_bits(float largest) { return std::clamp<int>(Bfloat16(largest).bits, 0x0080, 0x7f7f); }
  static float scale_of(int bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0x7fff) << 16);
  }
  float top(int scale) const { return std::ldexp(scale_of(scale), -power_); }
  std::vector<float> shares() const {
    return bits_ == 4 ? std::vector<float>{1, 0.9F, 0.8F} : std::vector<float>{1};
  }

  void search_uniform() {
    const auto [least, greatest] = std::minmax_element(values_.begin(), values_.end());
    const bool mirrored = -*least > *greatest;
    const float other = mirrored ? -*greatest : *least;
    for (const float share : shares()) {
      const int scale = scale_bits(largest_ * share);
      const int below = static_cast<int>(std::floor(other * share / scale_of(scale) * 64));
      for (const int place : {below, below + 1})
        take({scale, (std::clamp(place, -64, 63) & 127) + (mirrored ? 128 : 0), 0}, best_);
    }
  }

  void search_piecewise(bool alone) {
    Best best{0, 0, std::numeric_limits<float>::infinity()};
    const auto attempt = [&](int scale, int breakpoint) {
      if (breakpoint <= 16) take({scale | 0x8000, 16 * breakpoint - 1, 0}, best);
    };
    const auto attempt_around = [&](int distance) {
      const int scale = best.scale, middle = (best.place + 1) / 16;
      attempt(scale, middle - distance);
      attempt(scale, middle + distance);
    };
    for (const int breakpoint : {4, 8, 12, 16}) attempt(scale_bits(largest_), breakpoint);
    attempt_around(2);
    const int middle = (best.place + 1) / 16;
    for (const float share : shares())
      if (share < 1) attempt(scale_bits(largest_ * share), middle);
    attempt_around(1);
    if (alone || best.error < best_.error) best_ = best;
  }

  void take(Best trial, Best& best) const {
    trial.error = trial.scale >= 0x8000 ? error(PlainPiecewise(bits_, top(trial.scale), trial.place))
                                        : error(PlainUniform(bits_, top(trial.scale), trial.place));
    if (trial.error < best.error) best = trial;
  }

  template <class Levels>
  float error(const Levels& of) const {
    const std::vector<float> levels = of.levels();
    float sums[32] = {};
    for (std::size_t i = 0; i < scaled_.size(); ++i) {
      const float off = scaled_[i] - levels[static_cast<std::size_t>(of.code(scaled_[i]))];
      sums[i / 8] += off * off;
    }
    for (int half = 16; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
  }

  template <class Levels>
  void fill(const Levels& of, PlainGroup& result) const {
    const std::vector<float> levels = of.levels();
    for (std::size_t i = 0; i < count_; ++i) {
      result.codes.push_back(of.code(scaled_[i]));
      result.decoded.push_back(std::ldexp(levels[static_cast<std::size_t>(result.codes.back())], power_));
    }
  }

  int bits_;
  std::size_t count_;
  std::vector<float> values_, scaled_;  // with the padding; scaled by 2^-power
  int power_ = 0;
  float largest_ = 0;
  bool finite_ = true;
  Best best_{0, 0, std::numeric_limits<float>::infinity()};
};

}  // namespace stowage::cpu::test
