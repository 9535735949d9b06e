// Tensors may be stored in a narrower type than kernels compute in. A kernel is a template on the type T that
// its tensors hold; it computes, and keeps sums and statistics, in Sum<T>: f32 for bf16 and f16, else T
// itself. Results are rounded to T once.
//
// Loops over single elements use `wide` and `rounded`. Others work on rows or blocks:
//
//   Sum<T> buffer[block];
//   const Sum<T>* a = loaded(length, x, buffer);  // x itself, or widened into the buffer
//   Sum<T>* b = target(y, buffer);                // y itself, or the buffer
//   …                                             // arithmetic from a to b, which may be one
//   store(length, b, y);                          // nothing, or the buffer rounded into y
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

namespace stowage::cpu {

// Types that are stored but not computed in.
template <class T>
concept Narrow = std::same_as<T, Bfloat16> || std::same_as<T, Float16>;
template <class T>
inline constexpr bool is_narrow = Narrow<T>;

template <class T>
using Sum = std::conditional_t<is_narrow<T>, float, T>;

template <class T>
STOWAGE_HOST_DEVICE Sum<T> wide(T value) {
  return static_cast<Sum<T>>(value);
}

template <class T>
STOWAGE_HOST_DEVICE T rounded(Sum<T> value) {
  return static_cast<T>(value);
}

void widen(std::int64_t count, const Bfloat16* x, float* y);
void widen(std::int64_t count, const Float16* x, float* y);
void narrow(std::int64_t count, const float* x, Bfloat16* y);
void narrow(std::int64_t count, const float* x, Float16* y);

inline const float* loaded(std::int64_t, const float* x, float*) { return x; }
inline const double* loaded(std::int64_t, const double* x, double*) { return x; }
template <Narrow T>
const float* loaded(std::int64_t count, const T* x, float* buffer) {
  widen(count, x, buffer);
  return buffer;
}

inline float* target(float* y, float*) { return y; }
inline double* target(double* y, double*) { return y; }
template <Narrow T>
float* target(T*, float* buffer) {
  return buffer;
}

inline void store(std::int64_t, const float*, float*) {}
inline void store(std::int64_t, const double*, double*) {}
template <Narrow T>
void store(std::int64_t count, const float* buffer, T* y) {
  narrow(count, buffer, y);
}

// Returns `count` numbers that belong to the calling thread until its next call: for rows too long for the
// stack. Requires that the caller runs no parallel loop meanwhile, in which its thread could take up another
// kernel's work.
template <class T>
T* thread_scratch(std::int64_t count) {
  thread_local std::vector<T> scratch;
  if (scratch.size() < static_cast<std::size_t>(count)) scratch.resize(static_cast<std::size_t>(count));
  return scratch.data();
}

}  // namespace stowage::cpu
