// Rotary position embedding of query and key heads, which may be RMS-normalised first; value heads are
// copied. T: float, Bfloat16 or Float16, computed in f32 and rounded once. Any alignment. Stream order.
// Throws DeviceError. Without norms, results have the bits of the CPU's kernels.
#pragma once

#include "kernels/math/rotary.h"

namespace stowage::cuda {

// y = qkv, query and key heads turned. y may be qkv.
template <class T>
void rotary(const RotaryShape& shape, const T* qkv, T* y, void* stream);

// dqkv = dy, turned back. dqkv may be dy.
template <class T>
void rotary_backward(const RotaryShape& shape, const T* dy, T* dqkv, void* stream);

// As the CPU's, rstd in f32. A head is read once.
template <class T>
void normed_rotary(const RotaryShape& shape, double epsilon, const T* qkv, const T* query_gain,
                   const T* key_gain, T* y, float* rstd, void* stream);

template <class T>
struct NormedRotaryGradient {
  const T* qkv = nullptr;
  const T* query_gain = nullptr;
  const T* key_gain = nullptr;
  const float* rstd = nullptr;
  const T* dy = nullptr;
  T* dqkv = nullptr;         // may be dy
  T* dquery_gain = nullptr;  // [width], as is dkey_gain; both or none
  T* dkey_gain = nullptr;
};

// Computes all gradients in one pass: a block has a chunk of tokens, and the sums of the chunks are added in
// order. The cut of the tokens depends on the shape alone. Scratch: column_sum.h.
template <class T>
void normed_rotary_backward(const RotaryShape& shape, const NormedRotaryGradient<T>& of, void* stream);

}  // namespace stowage::cuda
