// Common parts of both kinds of attention kernels: places of a head's rows, the keys that a query sees,
// and dropout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/dropout_mask.h"
#include "kernels/cuda/pack.h"

namespace stowage::cuda {

// The kernels' parameter, by value.
struct AttentionGrid {
  std::int64_t heads, sequence, width, head_width;
  std::int64_t group, key_width, stride;  // query heads of a key head; all key heads' width; qkv's row
  std::int64_t first_head;                // the launch's first query head, counted through all samples
  std::int32_t window;                    // the sequence, where there is no window
  bool causal, dropped, aligned;
  float scale;         // scale of scores
  float binary_scale;  // scale / ln 2: exp(scale x) = 2^(binary_scale x)
  DropoutMask mask;
  const std::int32_t* seen;    // [samples, sequence], or null
  const std::int32_t* begins;  // [samples, sequence], or null
  std::int64_t first_token;    // within a kernel, of the block's sample (of_head)

  // Returns the grid for the blocks of one query head, or of a group's.
  __device__ AttentionGrid of_head(std::int64_t head) const {
    AttentionGrid grid = *this;
    grid.first_token = head / heads * sequence;
    return grid;
  }

  // The first key that a query sees, padding aside; may be negative. It never falls from one query to the
  // next. 32 bits, since registers are few. Requires query < sequence.
  __device__ std::int32_t first_key(std::int64_t query) const {
    const std::int32_t first = static_cast<std::int32_t>(query) + 1 - window;
    if (begins == nullptr) return first;
    const std::int32_t begin = begins[first_token + query];
    return begin > first ? begin : first;
  }
  // The first key of the first tile of `rows` keys that queries from `query` on see. Requires query <
  // sequence.
  __device__ std::int64_t first_tile(std::int64_t query, int rows) const {
    const std::int32_t first = first_key(query);
    return first > 0 ? first / rows * rows : 0;
  }
};

// Starts of a head's rows in [N, width] and [samples, heads, sequence] tensors.
struct HeadPlace {
  std::int64_t out, row;

  __device__ HeadPlace(const AttentionGrid& grid, std::int64_t head) {
    out = head / grid.heads * grid.sequence * grid.width + head % grid.heads * grid.head_width;
    row = head * grid.sequence;
  }
  // Starts of the head's queries and of its keys in [N, packed width]; values are key_width behind keys.
  __device__ std::int64_t queries(const AttentionGrid& grid, std::int64_t head) const {
    return head / grid.heads * grid.sequence * grid.stride + head % grid.heads * grid.head_width;
  }
  __device__ std::int64_t keys(const AttentionGrid& grid, std::int64_t head) const {
    return head / grid.heads * grid.sequence * grid.stride + grid.width +
           head % grid.heads / grid.group * grid.head_width;
  }
};

__device__ inline bool sees(const AttentionGrid& grid, std::int64_t query, std::int64_t key) {
  return query < grid.sequence && key < grid.sequence && (!grid.causal || key <= query) &&
         static_cast<std::int32_t>(key) >= grid.first_key(query) &&
         (grid.seen == nullptr || grid.seen[grid.first_token + key] != 0);
}

// Dropout's factor of a head's probability; `row` = number of the query through all heads.
__device__ inline float kept(const AttentionGrid& grid, std::int64_t row, std::int64_t key) {
  return grid.dropped ? grid.mask.factor(static_cast<std::uint64_t>(row * grid.sequence + key)) : 1.0F;
}

// `aligned`: all tensors of T are 16-byte aligned.
template <class T>
AttentionGrid attention_grid(const AttentionShape& shape, bool aligned) {
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_width()));
  const std::int64_t window = shape.window > 0 ? std::min(shape.window, shape.sequence) : shape.sequence;
  return {.heads = shape.heads,
          .sequence = shape.sequence,
          .width = shape.width,
          .head_width = shape.head_width(),
          .group = shape.group(),
          .key_width = shape.key_width(),
          .stride = shape.packed_width(),
          .first_head = 0,
          .window = static_cast<std::int32_t>(window),
          .causal = shape.causal,
          .dropped = shape.dropout > 0,
          .aligned = aligned && shape.head_width() % pack_size<T> == 0,
          .scale = static_cast<float>(scale),
          .binary_scale = static_cast<float>(scale / 0.69314718055994530942),
          .mask = DropoutMask(shape.random, shape.dropout),
          .seen = shape.seen,
          .begins = shape.begins,
          .first_token = 0};
}

}  // namespace stowage::cuda
