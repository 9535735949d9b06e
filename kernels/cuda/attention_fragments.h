// Attention's tiles in bf16 or f16 (T) for tensor cores, in blocks of four warps. A warp owns 16 of its
// block's rows (of queries, or of keys) and computes all their results alone, while tiles of the other
// operand stream through shared memory (FlashAttention-2, section 3.3).
//
// `width` is the head's width rounded up to 64, 128 or 256; columns behind the head's end, and rows behind
// the sequence's, are zeros. A tile's rows are eight elements longer than they need to be: eight neighbouring
// ones, which load_matrices reads at once, then lie in 32 different banks.
//
// The sixteen rows of a block stand in shared memory in another order (place_of_row): a lane's eight scores
// then belong to two own rows and four neighbouring streamed rows, and dropout draws for four keys at once.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention_grid.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/reduce.h"
#include "kernels/math/exponential.h"

namespace stowage::cuda {

inline constexpr int tensor_warps = 4;
inline constexpr int tensor_threads = tensor_warps * warp_size;
// Least blocks on a multiprocessor: one loads while another computes, and a thread may have 255 registers.
inline constexpr int tensor_blocks = 2;
inline constexpr int owned_rows = tensor_warps * block_side;  // rows that a block of threads owns

template <int width>
inline constexpr int fragment_stride = width + 8;

// Returns the elements of a tile of so many rows.
template <int width>
constexpr std::size_t fragment_tile(int rows) {
  return static_cast<std::size_t>(rows) * fragment_stride<width>;
}

// The tensor's row, counted from the tile's first, that stands in the tile's row `row`.
__device__ inline int place_of_row(int row) {
  return row / 16 * 16 + row % 8 / 2 * 4 + row % 16 / 8 * 2 + row % 2;
}

// A lane's scores in a block: rows own_row(0) and own_row(1), columns streamed_row() + {0, 1, 2, 3}, in the
// tensors' order; and their places in the lane's sums.
__device__ inline int own_row(int i) { return place_of_row(lane_group() + 8 * i); }
__device__ inline int streamed_row() { return 2 * lane_pair(); }
__device__ constexpr int score_index(int i, int j) { return j / 2 * 4 + i * 2 + j % 2; }

// Returns at most `count` elements from `x` on, and zeros behind them.
template <class T>
__device__ inline SixteenBytes eight_at(const T* x, std::int64_t count, bool aligned) {
  if (aligned) return *reinterpret_cast<const SixteenBytes*>(x);
  SixteenBytes eight = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) eight.words[i / 2] |= static_cast<std::uint32_t>(x[i].bits) << (16U * (i % 2));
  }
  return eight;
}

template <class T>
__device__ inline void put_eight(T* x, std::int64_t count, bool aligned, const SixteenBytes& eight) {
  if (aligned) {
    *reinterpret_cast<SixteenBytes*>(x) = eight;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) x[i].bits = static_cast<std::uint16_t>(eight.words[i / 2] >> (16U * (i % 2)));
  }
}

// Loads rows [first, first + rows) of a head whose row 0 is at `from`. Requires all threads of the block.
template <int width, class T>
__device__ void load_rows(const AttentionGrid& grid, const T* from, std::int64_t stride, std::int64_t first,
                          int rows, T* tile) {
  constexpr int packs = width / 8;
  for (int i = static_cast<int>(threadIdx.x); i < rows * packs; i += tensor_threads) {
    const int column = i % packs * 8;
    const std::int64_t row = first + place_of_row(i / packs);
    SixteenBytes eight = {};
    if (row < grid.sequence && column < grid.head_width)
      eight = eight_at(from + row * stride + column, grid.head_width - column, grid.aligned);
    *reinterpret_cast<SixteenBytes*>(tile + i / packs * fragment_stride<width> + column) = eight;
  }
}

// A warp's own rows as left operands: in registers if the accumulators leave room for them.
template <class T, int width>
class OwnRows {
 public:
  // `rows` in shared memory.
  __device__ explicit OwnRows(const T* rows) : rows_(rows) {
    if constexpr (in_registers) {
#pragma unroll
      for (int i = 0; i < width / block_side; ++i) kept_[i] = load(i);
    }
  }

  // Columns 16 i … 16 i + 15.
  __device__ LeftFragment operator[](int i) const {
    if constexpr (in_registers) return kept_[i];
    return load(i);
  }

 private:
  static constexpr bool in_registers = width <= 64;

  __device__ LeftFragment load(int i) const {
    return left_block(rows_ + i * block_side, fragment_stride<width>);
  }

  const T* rows_;
  LeftFragment kept_[in_registers ? width / block_side : 1];
};

// own rows^T: of 16 streamed rows.
template <class T, int width>
__device__ SumsFragment products_of_rows(const OwnRows<T, width>& own, const T* rows) {
  SumsFragment sums;
#pragma unroll
  for (int i = 0; i < width / block_side; ++i) {
    multiply_add<T>(own[i], right_transpose(rows + i * block_side, fragment_stride<width>), sums);
  }
  return sums;
}

// results += weights rows, for the columns from `rows` on.
template <int width, class T, int blocks>
__device__ void add_weighted_rows(const LeftFragment& weights, const T* rows,
                                  SumsFragment (&results)[blocks]) {
#pragma unroll
  for (int i = 0; i < blocks; ++i) {
    multiply_add<T>(weights, right_block(rows + i * block_side, fragment_stride<width>), results[i]);
  }
}

// Stores a warp's results, row i of a lane's two times factors[i], to rows [first, first + 16) and `columns`
// columns of a tensor whose row 0 is at `to`. They pass through `staging`, 16 rows of a tile that is no
// longer read.
template <int width, class T, int blocks>
__device__ void store_results(const AttentionGrid& grid, const SumsFragment (&results)[blocks],
                              const float (&factors)[2], T* staging, T* to, std::int64_t stride,
                              std::int64_t first, std::int64_t columns) {
  __syncwarp();
#pragma unroll
  for (int i = 0; i < blocks; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* pair = results[i].values + 2 * k;
      T* at = staging + (lane_group() + k % 2 * 8) * fragment_stride<width> + i * block_side + k / 2 * 8 +
              lane_pair();
      at[0] = T(pair[0] * factors[k % 2]);
      at[1] = T(pair[1] * factors[k % 2]);
    }
  }
  __syncwarp();
  constexpr int packs = blocks * block_side / 8;
  for (int i = static_cast<int>(threadIdx.x) % warp_size; i < block_side * packs; i += warp_size) {
    const int column = i % packs * 8;
    const std::int64_t row = first + place_of_row(i / packs);
    if (row >= grid.sequence || column >= columns) continue;
    put_eight(to + row * stride + column, columns - column, grid.aligned,
              *reinterpret_cast<const SixteenBytes*>(staging + i / packs * fragment_stride<width> + column));
  }
}

// The queries and keys of a lane's scores in a block whose first own and streamed rows are given.
template <bool rows_are_keys>
struct LanePairs {
  std::int64_t own, streamed;

  __device__ LanePairs(std::int64_t first_own, std::int64_t first_streamed)
      : own(first_own), streamed(first_streamed + streamed_row()) {}
  __device__ std::int64_t query(int i, int j) const {
    return rows_are_keys ? streamed + j : own + own_row(i);
  }
  __device__ std::int64_t key(int i, int j) const { return rows_are_keys ? own + own_row(i) : streamed + j; }
};

// Bit 4 i + j: whether the query of a lane's score (i, j) sees its key.
template <bool rows_are_keys>
__device__ unsigned seen_scores(const AttentionGrid& grid, std::int64_t first_own,
                                std::int64_t first_streamed) {
  const std::int64_t first_query = rows_are_keys ? first_streamed : first_own;
  const std::int64_t first_key = rows_are_keys ? first_own : first_streamed;
  const std::int64_t last_key = first_key + block_side - 1;
  const std::int64_t last_query =
      first_query + block_side <= grid.sequence ? first_query + block_side - 1 : grid.sequence - 1;
  if (grid.seen == nullptr && last_key < grid.sequence && (!grid.causal || last_key <= first_query) &&
      first_key >= grid.first_key(last_query))
    return 0xffU;
  const LanePairs<rows_are_keys> pairs(first_own, first_streamed);
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (sees(grid, pairs.query(i, j), pairs.key(i, j))) bits |= 1U << (4 * i + j);
    }
  }
  return bits;
}

// Bit 4 i + j: whether dropout keeps a lane's score (i, j) of a head whose first row, of all heads' rows, is
// head_row. Requires all lanes of the warp.
template <bool rows_are_keys>
__device__ unsigned kept_scores(const AttentionGrid& grid, std::int64_t head_row, std::int64_t first_own,
                                std::int64_t first_streamed) {
  if (!grid.dropped) return 0xffU;
  const auto kept_keys = [&](std::int64_t query, std::int64_t key) {
    return grid.mask.kept_of_four(static_cast<std::uint64_t>((head_row + query) * grid.sequence + key));
  };
  if constexpr (!rows_are_keys) {
    const std::int64_t key = first_streamed + streamed_row();
    return kept_keys(first_own + own_row(0), key) | kept_keys(first_own + own_row(1), key) << 4U;
  } else {
    // Two lanes own the even and the odd keys of the same four: each lane draws for two of the four queries.
    const unsigned odd = own_row(0) % 2;
    const std::int64_t key = first_own + own_row(0) / 4 * 4;
    const std::int64_t query = first_streamed + streamed_row() + 2 * odd;
    const unsigned drawn = kept_keys(query, key) | kept_keys(query + 1, key) << 4U;
    const unsigned other = swap_lanes(drawn, 4);
    const unsigned by_query = odd != 0 ? other | drawn << 8U : drawn | other << 8U;
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) bits |= (by_query >> (4 * j + 2 * i + odd) & 1U) << (4 * i + j);
    }
    return bits;
  }
}

}  // namespace stowage::cuda
