// What every kernel's test asks: f32 against f64 on the same inputs, and bits against thread counts.
//
// A kernel under test is a function object with `template <class T> std::vector<T> run() const` that
// makes its own inputs (the same numbers for f32 and f64) and returns all outputs in one vector.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "src/base/parallel_for.h"

namespace stowage::test {

// Half the distance from 1 to the next f32: the most that one rounding adds, relatively.
inline constexpr double unit = 0x1p-24;

// As above, of bf16.
inline constexpr double bf16_unit = 0x1p-8;

// Uniform in [-range, range], exactly the same numbers for f32 and f64.
template <class T>
std::vector<T> numbers(std::int64_t count, unsigned seed, float range = 1.0F) {
  std::mt19937 generator(seed);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) {
    const float unit_float = static_cast<float>(generator() >> 8U) * 0x1p-23F - 1.0F;
    value = static_cast<T>(unit_float * range);
  }
  return values;
}

// What outputs hold before a kernel writes them: an element that it leaves out or reads shows.
template <class T>
std::vector<T> unwritten(std::int64_t count) {
  return std::vector<T>(static_cast<std::size_t>(count), T(std::numeric_limits<float>::quiet_NaN()));
}

template <class T>
std::vector<T> joined(std::initializer_list<std::vector<T>> parts) {
  std::vector<T> all;
  for (const std::vector<T>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

template <class T>
std::vector<double> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

inline std::vector<double> widened(const std::vector<Bfloat16>& values) {
  std::vector<double> wide;
  for (const Bfloat16 value : values) wide.push_back(static_cast<double>(static_cast<float>(value)));
  return wide;
}

inline std::vector<double> widened(const std::vector<Float16>& values) {
  std::vector<double> wide;
  for (const Float16 value : values) wide.push_back(static_cast<double>(static_cast<float>(value)));
  return wide;
}

inline void expect_close(const std::vector<double>& found, const std::vector<double>& right, double bound) {
  ASSERT_EQ(found.size(), right.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(std::abs(found[i] - right[i]) <= bound)  // false for NaN
        << "element " << i << " is " << found[i] << ", not " << right[i] << "; off by "
        << std::abs(found[i] - right[i]) << ", bound " << bound;
  }
}

// As above with a bound for each element.
inline void expect_close(const std::vector<double>& found, const std::vector<double>& right,
                         const std::vector<double>& bounds) {
  ASSERT_EQ(found.size(), right.size());
  ASSERT_EQ(found.size(), bounds.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(std::abs(found[i] - right[i]) <= bounds[i])
        << "element " << i << " is " << found[i] << ", not " << right[i] << "; bound " << bounds[i];
  }
}

// f32 within `bound` of f64.
template <class Kernel>
void expect_work_type_agrees(const Kernel& kernel, double bound) {
  expect_close(widened(kernel.template run<float>()), kernel.template run<double>(), bound);
}

template <class T, class Kernel>
void expect_same_bits_in(const Kernel& kernel) {
  set_parallel_threads(1);
  const std::vector<T> one = kernel.template run<T>();
  for (int threads = 2; threads <= 4; ++threads) {
    set_parallel_threads(threads);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const std::vector<T> many = kernel.template run<T>();
      ASSERT_EQ(one.size(), many.size());
      EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(T)), 0) << threads << " threads";
    }
  }
  set_parallel_threads(0);
}

template <class Kernel>
void expect_same_bits(const Kernel& kernel) {
  expect_same_bits_in<float>(kernel);
  expect_same_bits_in<double>(kernel);
}

}  // namespace stowage::test
