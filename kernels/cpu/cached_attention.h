// Causal attention of new tokens over the keys and values of all tokens so far, which a cache keeps.
#pragma once

#include <cstdint>

#include "kernels/cpu/storage.h"

namespace stowage::cpu {

struct CachedAttentionShape {
  std::int64_t tokens = 0;  // new tokens
  std::int64_t before = 0;  // tokens in the cache before them
  std::int64_t heads = 1, key_heads = 1;
  std::int64_t width = 0;   // width of a head
  std::int64_t window = 0;  // a query sees its own key and window - 1 keys before it; 0: all before it

  std::int64_t group() const { return heads / key_heads; }  // query heads that share a key head
  std::int64_t packed_width() const { return (heads + 2 * key_heads) * width; }
};

// The keys and values of one layer: [key_heads, positions, width] each.
template <class T>
struct KeyValueCache {
  T* keys = nullptr;
  T* values = nullptr;
  std::int64_t positions = 0;
};

// Puts the keys and values of qkv[tokens, packed width] into the cache, behind the `before` tokens there;
// then out[tokens, heads * width] = softmax(q k^T / sqrt(width)) v over all keys that each query sees.
// Requires that the cache has room. Arithmetic between is f32, and results are rounded once.
template <class T>
void cached_attention(const CachedAttentionShape& shape, const T* qkv, const KeyValueCache<T>& cache, T* out);

}  // namespace stowage::cpu
