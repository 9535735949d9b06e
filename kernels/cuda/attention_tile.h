// Tiles of attention in shared memory, for blocks of 16 x 16 threads: thread (y, x) = (threadIdx / 16,
// threadIdx % 16).
//
// `width` is the head's width rounded up to 64, 128 or 256; columns behind the head's end, and rows behind
// the sequence's, are zeros. A tile is `rows` rows of f32, four elements longer than they need to be, so
// that neighbouring rows lie in other banks.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/dropout_mask.h"
#include "kernels/cuda/pack.h"

namespace stowage::cuda {

inline constexpr int attention_side = 16;
inline constexpr int attention_threads = attention_side * attention_side;

struct alignas(16) Float4 {
  float values[4];
};

__device__ inline Float4 four_at(const float* address) { return *reinterpret_cast<const Float4*>(address); }

template <int rows, int width>
struct TileShape {
  static constexpr int stride = width + 4;       // of rows of heads
  static constexpr int floats = rows * stride;   // of a tile of heads' rows
  static constexpr int score_stride = rows + 4;  // of a tile of scores
  static constexpr int score_floats = rows * score_stride;
  static constexpr int own_rows = rows / attention_side;  // of scores and results, that a thread computes
  static constexpr int own_fours = width / (4 * attention_side);  // groups of four columns of results
};

// What the kernels are told, by value.
struct AttentionGrid {
  std::int64_t heads, sequence, width, head_width;
  std::int64_t first_head;  // of the launch, counted through all samples
  bool causal, dropped, aligned;
  float scale;
  DropoutMask mask;
  // [samples, sequence], or null; within a kernel, of the block's sample (of_head).
  const std::int32_t* seen;

  // What the blocks of one head need.
  __device__ AttentionGrid of_head(std::int64_t head) const {
    AttentionGrid grid = *this;
    if (seen != nullptr) grid.seen += head / heads * sequence;
    return grid;
  }
};

// Where one head's rows start in [N, width] and [samples, heads, sequence] tensors.
struct HeadPlace {
  std::int64_t out, row;

  __device__ HeadPlace(const AttentionGrid& grid, std::int64_t head) {
    out = head / grid.heads * grid.sequence * grid.width + head % grid.heads * grid.head_width;
    row = head * grid.sequence;
  }
  // In [N, 3 width], of queries.
  __device__ std::int64_t queries(const AttentionGrid& grid, std::int64_t head) const {
    return head / grid.heads * grid.sequence * 3 * grid.width + head % grid.heads * grid.head_width;
  }
};

// Rows [first, first + rows) of a head whose row 0 is at `from`.
template <int rows, int width, class T>
__device__ void load_tile(const AttentionGrid& grid, const T* from, std::int64_t stride, std::int64_t first,
                          float* tile) {
  constexpr int packs = width / pack_size<T>;
  for (int i = static_cast<int>(threadIdx.x); i < rows * packs; i += attention_threads) {
    const int row = i / packs;
    const int column = i % packs * pack_size<T>;
    const bool inside = first + row < grid.sequence && column < grid.head_width;
    Pack<T> pack = {};
    if (inside)
      pack = load_pack(from + (first + row) * stride + column, grid.head_width - column, grid.aligned);
    float* to = tile + row * TileShape<rows, width>::stride + column;
    for (int k = 0; k < pack_size<T>; ++k) to[k] = pack.values[k];
  }
}

// scores[i][j] = row (y own_rows + i) of `left` times row (x + 16 j) of `right`.
template <int rows, int width>
__device__ void multiply_tiles(
    const float* left, const float* right,
    float (&scores)[TileShape<rows, width>::own_rows][TileShape<rows, width>::own_rows]) {
  using Shape = TileShape<rows, width>;
  const int y = static_cast<int>(threadIdx.x) / attention_side;
  const int x = static_cast<int>(threadIdx.x) % attention_side;
#pragma unroll
  for (int i = 0; i < Shape::own_rows; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::own_rows; ++j) scores[i][j] = 0;
  }
#pragma unroll 4
  for (int d = 0; d < width; d += 4) {
    Float4 a[Shape::own_rows];
    Float4 b[Shape::own_rows];
#pragma unroll
    for (int i = 0; i < Shape::own_rows; ++i)
      a[i] = four_at(left + (y * Shape::own_rows + i) * Shape::stride + d);
#pragma unroll
    for (int j = 0; j < Shape::own_rows; ++j)
      b[j] = four_at(right + (x + attention_side * j) * Shape::stride + d);
#pragma unroll
    for (int i = 0; i < Shape::own_rows; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::own_rows; ++j) {
        for (int k = 0; k < 4; ++k) scores[i][j] += a[i].values[k] * b[j].values[k];
      }
    }
  }
}

// Results of a thread: rows y own_rows + i, columns 64 g + 4 x + k.
template <int rows, int width>
struct OwnResults {
  using Shape = TileShape<rows, width>;
  float values[Shape::own_rows][Shape::own_fours][4] = {};

  // values += weights[own rows, rows] tile[rows, columns]
  __device__ void add_product(const float* weights, const float* tile) {
    const int y = static_cast<int>(threadIdx.x) / attention_side;
    const int x = static_cast<int>(threadIdx.x) % attention_side;
#pragma unroll 2
    for (int inner = 0; inner < rows; inner += 4) {
      Float4 weight[Shape::own_rows];
#pragma unroll
      for (int i = 0; i < Shape::own_rows; ++i) {
        weight[i] = four_at(weights + (y * Shape::own_rows + i) * Shape::score_stride + inner);
      }
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int g = 0; g < Shape::own_fours; ++g) {
          const Float4 value = four_at(tile + (inner + k) * Shape::stride + g * 4 * attention_side + 4 * x);
#pragma unroll
          for (int i = 0; i < Shape::own_rows; ++i) {
            for (int c = 0; c < 4; ++c) values[i][g][c] += weight[i].values[k] * value.values[c];
          }
        }
      }
    }
  }

  // To rows [first, first + rows) of a head whose row 0 is at `to`; row i times factors[i].
  template <class T>
  __device__ void store(const AttentionGrid& grid, const float (&factors)[Shape::own_rows], T* to,
                        std::int64_t stride, std::int64_t first) const {
    const int y = static_cast<int>(threadIdx.x) / attention_side;
    const int x = static_cast<int>(threadIdx.x) % attention_side;
#pragma unroll
    for (int i = 0; i < Shape::own_rows; ++i) {
      const std::int64_t row = first + y * Shape::own_rows + i;
      if (row >= grid.sequence) continue;
#pragma unroll
      for (int g = 0; g < Shape::own_fours; ++g) {
        const int column = g * 4 * attention_side + 4 * x;
        for (int c = 0; c < 4; ++c) {
          if (column + c < grid.head_width)
            to[row * stride + column + c] = static_cast<T>(values[i][g][c] * factors[i]);
        }
      }
    }
  }
};

__device__ inline bool sees(const AttentionGrid& grid, std::int64_t query, std::int64_t key) {
  return query < grid.sequence && key < grid.sequence && (!grid.causal || key <= query) &&
         (grid.seen == nullptr || grid.seen[key] != 0);
}

// What dropout multiplies a head's probability by; `row` = number of the query through all heads.
__device__ inline float kept(const AttentionGrid& grid, std::int64_t row, std::int64_t key) {
  return grid.dropped ? grid.mask.factor(static_cast<std::uint64_t>(row * grid.sequence + key)) : 1.0F;
}

template <class T>
AttentionGrid attention_grid(const AttentionShape& shape, bool aligned) {
  return {shape.heads,
          shape.sequence,
          shape.width,
          shape.head_width(),
          0,
          shape.causal,
          shape.dropout > 0,
          aligned && shape.head_width() % pack_size<T> == 0,
          static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_width()))),
          DropoutMask(shape.random, shape.dropout),
          shape.seen};
}

}  // namespace stowage::cuda
