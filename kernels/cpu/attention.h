// Multi-head attention in blocks, probabilities never stored (Dao et al., "FlashAttention").
#pragma once

#include <cstdint>

#include "kernels/cpu/storage.h"
#include "kernels/math/philox.h"

namespace stowage::cpu {

struct AttentionShape {
  std::int64_t samples = 0, heads = 1, sequence = 1;
  std::int64_t width = 0;  // width of all query heads together
  bool causal = true;
  double dropout = 0;  // rate on the probabilities; the draw is [sample, head, row, column] of the stream
  RandomStream random = {};
  // [samples, sequence]: keys of positions that are 0 get no weight. Null: all positions are seen.
  const std::int32_t* seen = nullptr;
  bool padded_at_end = false;  // promise: no position of a sample is seen behind an unseen one
  // Heads of keys, and of values; 0: as many as of queries. Query head h reads key head h / group().
  std::int64_t key_heads = 0;
  std::int64_t window = 0;  // a query sees its own key and window - 1 keys before it; 0: all before it
  // [samples, sequence]: the index within the sample of the first token of a token's document. A query sees
  // no key of another document. Null: a sample is one document.
  const std::int32_t* begins = nullptr;

  std::int64_t head_width() const { return width / heads; }
  // Query heads that share a key head.
  std::int64_t group() const { return key_heads > 0 ? heads / key_heads : 1; }
  std::int64_t key_width() const { return width / group(); }
  std::int64_t packed_width() const { return width + 2 * key_width(); }
};

// qkv[N, packed width] holds queries, keys and values side by side, each split in heads. out =
// dropout(softmax(q k^T / sqrt(head width))) v; log_sum_exp[samples, heads, sequence] of the scaled scores.
// Requires that a window and `begins` come with a causal mask and without `seen`. Throws InvalidInput for a
// sample without a seen position, if `padded_at_end` does not hold, and if a sample's `begins` fall or lie
// outside [0, the token's index]. In bf16 and f16 a head's rows are widened and its results rounded: all
// arithmetic between is f32.
template <class T>
void attention(const AttentionShape& shape, const T* qkv, T* out, Sum<T>* log_sum_exp);

// Adds the gradients of a key head's keys and values over its query heads in their order.
template <class T>
void attention_backward(const AttentionShape& shape, const T* qkv, const T* out, const Sum<T>* log_sum_exp,
                        const T* dout, T* dqkv);

}  // namespace stowage::cpu
