// Our own attention: tiles in shared memory, probabilities never stored (Dao et al., "FlashAttention";
// Dao, "FlashAttention-2", for the order of the loops). Plain f32 arithmetic: any card, any head width up to
// 256, any sequence, with or without dropout.
//
// Backward in two passes without atomics: one block sums the gradients of its keys and values over the
// queries in order, another those of its queries over the keys. Scratch: rows' sums of dout * out, f32 for
// each row of as many heads at a time as fit.
#pragma once

#include "kernels/cuda/attention.h"

namespace stowage::cuda {

template <class T>
void flash_attention(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp, void* stream);

template <class T>
void flash_attention_backward(const AttentionShape& shape, const AttentionGradient<T>& of, void* stream);

}  // namespace stowage::cuda
