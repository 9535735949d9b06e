#include "kernels/cpu/cached_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/clones.h"
#include "kernels/math/exponential.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t lanes = 16;  // partial sums of a dot product, added in a tree

STOWAGE_HOST_DEVICE float dot(std::int64_t count, const float* a, const float* b) {
  float sums[lanes] = {};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes) {
#pragma omp simd
    for (std::int64_t k = 0; k < lanes; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (std::int64_t i = whole; i < count; ++i) sums[i - whole] += a[i] * b[i];
  for (std::int64_t distance = lanes / 2; distance > 0; distance /= 2)
    for (std::int64_t k = 0; k < distance; ++k) sums[k] += sums[k + distance];
  return sums[0];
}

// The query heads of one token that share a key head, and the memory of their sums.
struct Group {
  std::int64_t heads = 1, width = 0, keys = 0;
  float* queries;  // [heads, width], scaled
  float* scores;   // [heads, keys]
  float* out;      // [heads, width]
};

// A key's part of the scores.
STOWAGE_CLONES void add_key(const Group& group, std::int64_t key, const float* row) {
  for (std::int64_t head = 0; head < group.heads; ++head)
    group.scores[head * group.keys + key] = dot(group.width, group.queries + head * group.width, row);
}

// Turns scores into weights whose sum is 1.
STOWAGE_CLONES void weigh(const Group& group) {
  for (std::int64_t head = 0; head < group.heads; ++head) {
    float* const scores = group.scores + head * group.keys;
    float largest = scores[0];
#pragma omp simd reduction(max : largest)
    for (std::int64_t i = 0; i < group.keys; ++i) largest = scores[i] > largest ? scores[i] : largest;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < group.keys; ++i) {
      scores[i] = exponential(scores[i] - largest);
      sum += scores[i];
    }
    const float factor = 1 / sum;
#pragma omp simd
    for (std::int64_t i = 0; i < group.keys; ++i) scores[i] *= factor;
  }
}

// A key's part of the results.
STOWAGE_CLONES void add_value(const Group& group, std::int64_t key, const float* row) {
  for (std::int64_t head = 0; head < group.heads; ++head) {
    const float weight = group.scores[head * group.keys + key];
    float* const out = group.out + head * group.width;
#pragma omp simd
    for (std::int64_t i = 0; i < group.width; ++i) out[i] += weight * row[i];
  }
}

// Computes the query heads of token `token` that share key head `head`.
template <class T>
void attend(const CachedAttentionShape& shape, const T* qkv, const KeyValueCache<T>& cache, T* out,
            std::int64_t token, std::int64_t head) {
  const std::int64_t last = shape.before + token;
  const std::int64_t first = shape.window > 0 ? std::max<std::int64_t>(0, last + 1 - shape.window) : 0;
  const std::int64_t size = shape.group() * shape.width;
  Group group{shape.group(), shape.width, last + 1 - first, nullptr, nullptr, nullptr};
  float* const row = thread_scratch<float>(shape.width + 2 * size + group.heads * group.keys);
  group.queries = row + shape.width;
  group.out = group.queries + size;
  group.scores = group.out + size;

  const T* const queries = qkv + token * shape.packed_width() + head * size;
  const float scale = 1 / std::sqrt(static_cast<float>(shape.width));
  for (std::int64_t i = 0; i < size; ++i) group.queries[i] = scale * wide(queries[i]);
  std::fill(group.out, group.out + size, 0.0F);

  const std::int64_t begin = (head * cache.positions + first) * shape.width;
  for (std::int64_t key = 0; key < group.keys; ++key)
    add_key(group, key, loaded(shape.width, cache.keys + begin + key * shape.width, row));
  weigh(group);
  for (std::int64_t key = 0; key < group.keys; ++key)
    add_value(group, key, loaded(shape.width, cache.values + begin + key * shape.width, row));
  T* const to = out + (token * shape.heads + head * shape.group()) * shape.width;
  for (std::int64_t i = 0; i < size; ++i) to[i] = rounded<T>(group.out[i]);
}

}  // namespace

template <class T>
void cached_attention(const CachedAttentionShape& shape, const T* qkv, const KeyValueCache<T>& cache,
                      T* out) {
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    const T* from = qkv + token * shape.packed_width() + shape.heads * shape.width;
    for (T* const to : {cache.keys, cache.values})
      for (std::int64_t head = 0; head < shape.key_heads; ++head, from += shape.width)
        std::copy(from, from + shape.width,
                  to + (head * cache.positions + shape.before + token) * shape.width);
  }
  parallel_for(shape.tokens * shape.key_heads, 1, [&](std::int64_t index, std::int64_t) {
    attend(shape, qkv, cache, out, index / shape.key_heads, index % shape.key_heads);
  });
}

template void cached_attention(const CachedAttentionShape&, const float*, const KeyValueCache<float>&,
                               float*);
template void cached_attention(const CachedAttentionShape&, const Bfloat16*, const KeyValueCache<Bfloat16>&,
                               Bfloat16*);
template void cached_attention(const CachedAttentionShape&, const Float16*, const KeyValueCache<Float16>&,
                               Float16*);

}  // namespace stowage::cpu
