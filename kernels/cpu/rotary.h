// Rotary position embedding of query and key heads, which may be RMS-normalised first (as in Qwen3). Value
// heads are copied. Results have the same bits on every instruction set.
#pragma once

#include "kernels/cpu/storage.h"
#include "kernels/math/rotary.h"

namespace stowage::cpu {

// y = qkv, query and key heads turned. y may be qkv.
template <class T>
void rotary(const RotaryShape& shape, const T* qkv, T* y);

// dqkv = dy, turned back. dqkv may be dy.
template <class T>
void rotary_backward(const RotaryShape& shape, const T* dy, T* dqkv);

// Each query and key head is n = x rstd, times its gain[width], then turned, and rounded once;
// rstd[tokens, turned_heads] = 1 / sqrt(average(x^2) + epsilon).
template <class T>
void normed_rotary(const RotaryShape& shape, double epsilon, const T* qkv, const T* query_gain,
                   const T* key_gain, T* y, Sum<T>* rstd);

template <class T>
struct NormedRotaryGradient {
  const T* qkv = nullptr;
  const T* query_gain = nullptr;
  const T* key_gain = nullptr;
  const Sum<T>* rstd = nullptr;
  const T* dy = nullptr;
  T* dqkv = nullptr;         // may be dy
  T* dquery_gain = nullptr;  // [width], as is dkey_gain; both or none
  T* dkey_gain = nullptr;
};

// With u = dy turned back and g = u gain: dx = rstd (g - n average(g n)), and the gain's gradient is the sum
// of u n over tokens and heads: the heads of a token first, then the tokens of a run, then the runs, all in
// order. The number of runs depends on the shape alone.
template <class T>
void normed_rotary_backward(const RotaryShape& shape, const NormedRotaryGradient<T>& of);

}  // namespace stowage::cpu
