#include "kernels/cuda/flash_attention.h"

#include <cmath>

#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/shared_memory.h"
#include "kernels/math/exponential.h"

namespace stowage::cuda {

inline constexpr float below_all_scores = -3.0e38F;

// A query's state over the keys seen so far: the largest score, and the sum of exp(score - largest).
struct RowState {
  float largest = below_all_scores, sum = 0;
};

// Two tiles of heads' rows (queries; keys, then values) and one of weights.
template <int rows, int width>
constexpr std::size_t flash_attention_shared = (2 * TileShape<rows, width>::floats +
                                                TileShape<rows, width>::score_floats) *
                                               sizeof(float);

// Turns a row's scores into its weights, after dropout; returns the factor of older sums.
template <int columns>
__device__ float weigh(const AttentionGrid& grid, std::int64_t head_row, std::int64_t query,
                       std::int64_t first_key, float (&scores)[columns], RowState& state) {
  const int x = static_cast<int>(threadIdx.x) % attention_side;
  float largest = state.largest;
#pragma unroll
  for (int j = 0; j < columns; ++j) {
    scores[j] *= grid.scale;
    if (sees(grid, query, first_key + x + attention_side * j)) largest = Largest::of(largest, scores[j]);
  }
  largest = reduce_warp<Largest>(largest, attention_side);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < columns; ++j) {
    const bool seen = sees(grid, query, first_key + x + attention_side * j);
    scores[j] = seen ? exponential(scores[j] - largest) : 0.0F;
    sum += scores[j];
  }
  sum = reduce_warp<Sum>(sum, attention_side);
#pragma unroll
  for (int j = 0; j < columns; ++j) {
    scores[j] *= kept(grid, head_row + query, first_key + x + attention_side * j);
  }
  const float factor = exponential(state.largest - largest);
  state.largest = largest;
  state.sum = state.sum * factor + sum;
  return factor;
}

// Blocks are (head, tile of queries); the longest causal ones start first.
template <int rows, int width>
__global__ void __launch_bounds__(attention_threads, 1)
    flash_attention_kernel(AttentionGrid all_heads, const float* qkv, float* out, float* log_sum_exp) {
  using Shape = TileShape<rows, width>;
  auto* queries = dynamic_shared<float>();
  float* keys = queries + Shape::floats;  // keys, and later values
  float* weights = keys + Shape::floats;
  const int y = static_cast<int>(threadIdx.x) / attention_side;
  const int x = static_cast<int>(threadIdx.x) % attention_side;
  const std::int64_t head = all_heads.first_head + blockIdx.x;
  const AttentionGrid grid = all_heads.of_head(head);
  const std::int64_t first = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * rows;
  const HeadPlace place(grid, head);
  const float* rows_of_keys = qkv + place.keys(grid, head);
  const std::int64_t seen = grid.causal && first + rows < grid.sequence ? first + rows : grid.sequence;

  RowState states[Shape::own_rows];
  OwnResults<rows, width> results;
  load_tile<rows, width>(grid, qkv + place.queries(grid, head), grid.stride, first, queries);
  for (std::int64_t key = grid.first_tile(first, rows); key < seen; key += rows) {
    load_tile<rows, width>(grid, rows_of_keys, grid.stride, key, keys);
    __syncthreads();
    float scores[Shape::own_rows][Shape::own_rows];
    multiply_tiles<rows, width>(queries, keys, scores);
#pragma unroll
    for (int i = 0; i < Shape::own_rows; ++i) {
      const int row = y * Shape::own_rows + i;
      const float factor = weigh(grid, place.row, first + row, key, scores[i], states[i]);
      for (auto& four : results.values[i]) {
        for (float& value : four) value *= factor;
      }
      for (int j = 0; j < Shape::own_rows; ++j) {
        weights[row * Shape::score_stride + x + attention_side * j] = scores[i][j];
      }
    }
    __syncthreads();
    load_tile<rows, width>(grid, rows_of_keys + grid.key_width, grid.stride, key, keys);
    __syncthreads();
    results.add_product(weights, keys);
    __syncthreads();
  }

  float factors[Shape::own_rows];
  for (int i = 0; i < Shape::own_rows; ++i) {
    const std::int64_t query = first + y * Shape::own_rows + i;
    factors[i] = query < grid.sequence ? 1.0F / states[i].sum : 0.0F;
    if (x == 0 && query < grid.sequence) {
      log_sum_exp[place.row + query] = states[i].largest + std::log(states[i].sum);
    }
  }
  results.store(grid, factors, out + place.out, grid.width, first);
}

template <int rows, int width>
void launch_forward(const AttentionShape& shape, const float* qkv, float* out, float* log_sum_exp,
                    void* stream) {
  const Extent blocks{shape.samples * shape.heads, blocks_for(shape.sequence, rows)};
  launch(flash_attention_kernel<rows, width>, "attention",
         {blocks, attention_threads, flash_attention_shared<rows, width>}, stream,
         attention_grid<float>(shape, is_aligned(qkv)), qkv, out, log_sum_exp);
}

void flash_attention(const AttentionShape& shape, const float* qkv, float* out, float* log_sum_exp,
                     void* stream) {
  if (shape.head_width() <= 64) return launch_forward<64, 64>(shape, qkv, out, log_sum_exp, stream);
  if (shape.head_width() <= 128) return launch_forward<64, 128>(shape, qkv, out, log_sum_exp, stream);
  launch_forward<32, 256>(shape, qkv, out, log_sum_exp, stream);
}

STOWAGE_CUDA_KERNEL(flash_attention_kernel<64, 64>);
STOWAGE_CUDA_KERNEL(flash_attention_kernel<64, 128>);
STOWAGE_CUDA_KERNEL(flash_attention_kernel<32, 256>);

}  // namespace stowage::cuda
