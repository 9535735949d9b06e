// Common parts of attention and its gradient: the places of a head's rows, and the blocks they are cut in.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/storage.h"

namespace stowage::cpu {

// Queries and keys of one scores tile: 128 KiB in f64. The tile lives on the worker's stack.
inline constexpr std::int64_t query_block = 64;
inline constexpr std::int64_t key_block = 256;

template <class T>
struct ScoresTile {
  alignas(64) T data[query_block * key_block];
};

// A head of a sample.
struct Head {
  std::int64_t sample = 0, index = 0;
};

inline Head head_of(const AttentionShape& shape, std::int64_t number) {
  return {number / shape.heads, number % shape.heads};
}

// First rows of a head's queries, keys and values in a [N, packed width] tensor. P: pointer to const or not.
template <class P>
struct HeadRows {
  P queries, keys, values;
};

template <class P>
HeadRows<P> rows_of(const AttentionShape& shape, const Head& head, P qkv) {
  P sample = qkv + head.sample * shape.sequence * shape.packed_width();
  P keys = sample + shape.width + head.index / shape.group() * shape.head_width();
  return {sample + head.index * shape.head_width(), keys, keys + shape.key_width()};
}

// Offset of a head's first row in a [N, width] tensor.
inline std::int64_t output_offset(const AttentionShape& shape, const Head& head) {
  return head.sample * shape.sequence * shape.width + head.index * shape.head_width();
}

// Offset of a head's first row in a [samples, heads, sequence] tensor.
inline std::int64_t row_number(const AttentionShape& shape, const Head& head) {
  return (head.sample * shape.heads + head.index) * shape.sequence;
}

// Rows [row, row + rows) against keys [key, key + keys).
struct Block {
  std::int64_t row = 0, rows = 0, key = 0, keys = 0;
};

inline std::int64_t keys_seen(const AttentionShape& shape, std::int64_t row, std::int64_t rows) {
  return shape.causal ? row + rows : shape.sequence;
}

// Returns the first key that a query sees. It never falls from one query to the next, and a block of queries
// sees every key from its first query's on.
inline std::int64_t first_key(const AttentionShape& shape, const Head& head, std::int64_t query) {
  std::int64_t first = shape.window > 0 ? std::max<std::int64_t>(0, query + 1 - shape.window) : 0;
  if (shape.begins != nullptr)
    first = std::max<std::int64_t>(first, shape.begins[head.sample * shape.sequence + query]);
  return first;
}

// Keys [first, last), counted from a block's first key.
struct KeyRange {
  std::int64_t first = 0, last = 0;

  std::int64_t count() const { return last - first; }
  // Sets the scores of the block's other keys to zero.
  template <class T>
  void clear_others(const Block& block, T* scores) const {
    std::fill(scores, scores + first, T{0});
    std::fill(scores + last, scores + block.keys, T{0});
  }
};

// Returns the block's keys that its row `row + i` sees, padding aside.
inline KeyRange visible(const AttentionShape& shape, const Head& head, const Block& block, std::int64_t i) {
  const std::int64_t query = block.row + i;
  const std::int64_t first =
      std::clamp<std::int64_t>(first_key(shape, head, query) - block.key, 0, block.keys);
  const std::int64_t last = shape.causal ? std::min(block.keys, query + 1 - block.key) : block.keys;
  return {first, std::max(first, last)};
}

// Puts `value` at the row's keys that padding hides.
template <class T>
void hide(const AttentionShape& shape, const Head& head, const Block& block, T value, T* row) {
  if (shape.seen == nullptr) return;
  const std::int32_t* seen = shape.seen + head.sample * shape.sequence + block.key;
  for (std::int64_t key = 0; key < block.keys; ++key) row[key] = seen[key] != 0 ? row[key] : value;
}

// First element of the block's row i in the stream of [samples, heads, sequence, sequence] draws.
inline std::uint64_t first_draw(const AttentionShape& shape, const Head& head, const Block& block,
                                std::int64_t i) {
  return static_cast<std::uint64_t>((row_number(shape, head) + block.row + i) * shape.sequence + block.key);
}

template <class T>
T score_scale(const AttentionShape& shape) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(shape.head_width())));
}

// The head alone, as a tensor of its own that has one head.
inline AttentionShape alone(const AttentionShape& shape, const Head& head) {
  AttentionShape one = shape;
  one.samples = one.heads = 1;
  one.width = shape.head_width();
  one.key_heads = 0;
  if (shape.seen != nullptr) one.seen += head.sample * shape.sequence;
  if (shape.begins != nullptr) one.begins += head.sample * shape.sequence;
  one.random.first += static_cast<std::uint64_t>(row_number(shape, head) * shape.sequence);
  return one;
}

// Convert rows between f32 and a narrow type, each with its own stride.
template <Narrow T>
void widen_rows(std::int64_t rows, std::int64_t width, const T* from, std::int64_t stride,
                std::int64_t to_stride, float* to) {
  for (std::int64_t row = 0; row < rows; ++row) widen(width, from + row * stride, to + row * to_stride);
}
template <Narrow T>
void narrow_rows(std::int64_t rows, std::int64_t width, const float* from, std::int64_t from_stride,
                 std::int64_t stride, T* to) {
  for (std::int64_t row = 0; row < rows; ++row) narrow(width, from + row * from_stride, to + row * stride);
}

// Convert a head's queries, keys and values to and from one [sequence, 3 head width] in f32.
template <Narrow T>
void widen_head(const AttentionShape& shape, const Head& head, const T* qkv, float* to) {
  const HeadRows<const T*> rows = rows_of(shape, head, qkv);
  const std::int64_t width = shape.head_width();
  for (const T* from : {rows.queries, rows.keys, rows.values}) {
    widen_rows(shape.sequence, width, from, shape.packed_width(), 3 * width, to);
    to += width;
  }
}
template <Narrow T>
void narrow_head(const AttentionShape& shape, const Head& head, const float* from, T* dqkv) {
  const HeadRows<T*> rows = rows_of(shape, head, dqkv);
  const std::int64_t width = shape.head_width();
  for (T* to : {rows.queries, rows.keys, rows.values}) {
    narrow_rows(shape.sequence, width, from, 3 * width, shape.packed_width(), to);
    from += width;
  }
}

// tile[rows, keys] = scale * rows of `left` times rows of `right`, both with `stride`s of their own.
template <class T>
void multiply_rows(const AttentionShape& shape, const Block& block, const T* left, std::int64_t left_stride,
                   const T* right, std::int64_t right_stride, T scale, ScoresTile<T>& tile) {
  multiply_here<T>({block.rows,
                    block.keys,
                    shape.head_width(),
                    {left + block.row * left_stride, left_stride},
                    {right + block.key * right_stride, right_stride, true},
                    tile.data,
                    key_block},
                   scale, false);
}

}  // namespace stowage::cpu
