// Tiles of attention in f32 in shared memory, for blocks of 16 x 16 threads: thread (y, x) = (threadIdx / 16,
// threadIdx % 16).
//
// `width` is the head's width rounded up to 64, 128 or 256; columns behind the head's end, and rows behind
// the sequence's, are zeros. A tile is `rows` rows of f32, four elements longer than they need to be, so
// that neighbouring rows lie in other banks.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_grid.h"
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
  static constexpr int stride = width + 4;       // stride of rows of heads
  static constexpr int floats = rows * stride;   // floats in a tile of heads' rows
  static constexpr int score_stride = rows + 4;  // stride of a tile of scores
  static constexpr int score_floats = rows * score_stride;
  static constexpr int own_rows = rows / attention_side;  // rows of scores and results that a thread computes
  static constexpr int own_fours = width / (4 * attention_side);  // groups of four columns of results
};

// Rows [first, first + rows) of a head whose row 0 is at `from`.
template <int rows, int width>
__device__ void load_tile(const AttentionGrid& grid, const float* from, std::int64_t stride,
                          std::int64_t first, float* tile) {
  constexpr int packs = width / pack_size<float>;
  for (int i = static_cast<int>(threadIdx.x); i < rows * packs; i += attention_threads) {
    const int row = i / packs;
    const int column = i % packs * pack_size<float>;
    const bool inside = first + row < grid.sequence && column < grid.head_width;
    Pack<float> pack = {};
    if (inside)
      pack = load_pack(from + (first + row) * stride + column, grid.head_width - column, grid.aligned);
    float* to = tile + row * TileShape<rows, width>::stride + column;
    for (int k = 0; k < pack_size<float>; ++k) to[k] = pack.values[k];
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

  // Stores row i times factors[i], to rows [first, first + rows) of a head whose row 0 is at `to`.
  __device__ void store(const AttentionGrid& grid, const float (&factors)[Shape::own_rows], float* to,
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
          if (column + c < grid.head_width) to[row * stride + column + c] = values[i][g][c] * factors[i];
        }
      }
    }
  }
};

}  // namespace stowage::cuda
