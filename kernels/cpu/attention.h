// Multi-head attention in blocks, probabilities never stored (Dao et al., "FlashAttention").
#pragma once

#include <cstdint>

#include "kernels/cpu/storage.h"
#include "kernels/math/philox.h"

namespace stowage::cpu {

struct AttentionShape {
  std::int64_t samples = 0, heads = 1, sequence = 1;
  std::int64_t width = 0;  // width of all heads together
  bool causal = true;
  double dropout = 0;  // rate on the probabilities; the draw is [sample, head, row, column] of the stream
  RandomStream random = {};
  // [samples, sequence]: keys of positions that are 0 get no weight. Null: all positions are seen.
  const std::int32_t* seen = nullptr;
  bool padded_at_end = false;  // promise: no position of a sample is seen behind an unseen one

  std::int64_t head_width() const { return width / heads; }
};

// qkv[N, 3 width] holds queries, keys and values side by side, each split in heads. out = dropout(softmax(q
// k^T / sqrt(head width))) v; log_sum_exp[samples, heads, sequence] of the scaled scores. Throws InvalidInput
// for a sample without a seen position, and if `padded_at_end` does not hold. In bf16 and f16 a head's rows
// are widened and its results rounded: all arithmetic between is f32.
template <class T>
void attention(const AttentionShape& shape, const T* qkv, T* out, Sum<T>* log_sum_exp);

template <class T>
void attention_backward(const AttentionShape& shape, const T* qkv, const T* out, const Sum<T>* log_sum_exp,
                        const T* dout, T* dqkv);

}  // namespace stowage::cpu
