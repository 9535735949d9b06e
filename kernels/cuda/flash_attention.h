// Our own attention: tiles in shared memory, probabilities never stored (Dao et al., "FlashAttention"; Dao,
// "FlashAttention-2", for the order of the loops and the warps' shares). Any head width up to 256, any
// sequence, with or without dropout, padding, groups, a window and documents. It computes the shapes that
// cuDNN does not: f32, dropout by our random numbers, documents, and all shapes if there is no cuDNN. Tiles
// of keys that lie outside the window or the document of all of a tile's queries are skipped.
//
// Tensor cores multiply bf16 and f16 (fragments.h) and sum in f32; probabilities and gradients of scores are
// rounded to the type before they are multiplied. Separate kernels compute f32 in plain f32 arithmetic.
//
// Backward takes two passes without atomics: blocks of the first sum the gradients of their keys and values
// over the queries of one query head of their group after another; blocks of the second sum the gradients of
// their queries over the keys. Scratch: rows' sums of dout * out, an f32 for each row of as many groups of
// heads at a time as fit.
//
// Expected of bf16 on an H100, counted from its data sheet and not measured: a token of a BERT base layer
// (width 768, sequence 512) takes 4 * 512 * 768 operations forward and 14 * 512 * 768 backward, 1.6 + 5.6 ns
// at 989 TFLOP/s, all of which only Hopper's own wgmma reaches (plain f32, at 67: 23 + 82); 6 + 20 KB of
// device memory, 2 + 6 ns at 3.35 TB/s; and with dropout, in each of three passes, 1,536 draws of about 80
// instructions, one for four probabilities, 4 ns of all issue slots.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/math/bfloat16.h"

namespace stowage::cuda {

struct AttentionGrid;

void flash_attention(const AttentionShape& shape, const float* qkv, float* out, float* log_sum_exp,
                     void* stream);
// T: Bfloat16 or Float16.
template <class T>
void tensor_flash_attention(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp,
                            void* stream);
template <class T>
void flash_attention(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp, void* stream) {
  tensor_flash_attention(shape, qkv, out, log_sum_exp, stream);
}

template <class T>
void flash_attention_backward(const AttentionShape& shape, const AttentionGradient<T>& of, void* stream);

// Tensors of backward's two passes, over query heads [grid.first_head, grid.first_head + heads) of all
// samples' heads, whole groups: in f32 by plain arithmetic, in bf16 and f16 by tensor cores.
template <class T>
struct BackwardTensors {
  const T* qkv;
  const float* log_sum_exp;
  const T* dout;
  const float* delta;  // each row's sum of dout * out, for the launch's heads
  T* dqkv;
};

void launch_backward(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<float>& of,
                     void* stream);
// T: Bfloat16 or Float16.
template <class T>
void launch_tensor_backward(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<T>& of,
                            void* stream);
template <class T>
void launch_backward(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<T>& of,
                     void* stream) {
  launch_tensor_backward(grid, heads, of, stream);
}

}  // namespace stowage::cuda
