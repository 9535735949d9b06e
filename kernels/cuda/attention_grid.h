// Common parts of both kinds of attention kernels: places of a head's rows, the keys that a query sees,
// and dropout.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/dropout_mask.h"
#include "kernels/cuda/pack.h"

namespace stowage::cuda {

// The kernels' parameter, by value.
struct AttentionGrid {
  std::int64_t heads, sequence, width, head_width;
  std::int64_t first_head;  // the launch's first head, counted through all samples
  bool causal, dropped, aligned;
  float scale;         // scale of scores
  float binary_scale;  // scale / ln 2: exp(scale x) = 2^(binary_scale x)
  DropoutMask mask;
  // [samples, sequence], or null; within a kernel, of the block's sample (of_head).
  const std::int32_t* seen;

  // Returns the grid for the blocks of one head.
  __device__ AttentionGrid of_head(std::int64_t head) const {
    AttentionGrid grid = *this;
    if (seen != nullptr) grid.seen += head / heads * sequence;
    return grid;
  }
};

// Starts of a head's rows in [N, width] and [samples, heads, sequence] tensors.
struct HeadPlace {
  std::int64_t out, row;

  __device__ HeadPlace(const AttentionGrid& grid, std::int64_t head) {
    out = head / grid.heads * grid.sequence * grid.width + head % grid.heads * grid.head_width;
    row = head * grid.sequence;
  }
  // Start of the head's queries in [N, 3 width].
  __device__ std::int64_t queries(const AttentionGrid& grid, std::int64_t head) const {
    return head / grid.heads * grid.sequence * 3 * grid.width + head % grid.heads * grid.head_width;
  }
};

__device__ inline bool sees(const AttentionGrid& grid, std::int64_t query, std::int64_t key) {
  return query < grid.sequence && key < grid.sequence && (!grid.causal || key <= query) &&
         (grid.seen == nullptr || grid.seen[key] != 0);
}

// Dropout's factor of a head's probability; `row` = number of the query through all heads.
__device__ inline float kept(const AttentionGrid& grid, std::int64_t row, std::int64_t key) {
  return grid.dropped ? grid.mask.factor(static_cast<std::uint64_t>(row * grid.sequence + key)) : 1.0F;
}

// `aligned`: all tensors of T are 16-byte aligned.
template <class T>
AttentionGrid attention_grid(const AttentionShape& shape, bool aligned) {
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_width()));
  return {shape.heads,
          shape.sequence,
          shape.width,
          shape.head_width(),
          0,
          shape.causal,
          shape.dropout > 0,
          aligned && shape.head_width() % pack_size<T> == 0,
          static_cast<float>(scale),
          static_cast<float>(scale / 0.69314718055994530942),
          DropoutMask(shape.random, shape.dropout),
          shape.seen};
}

}  // namespace stowage::cuda
