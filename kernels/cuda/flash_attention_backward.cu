#include <algorithm>

#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/shared_memory.h"
#include "kernels/math/exponential.h"

namespace stowage::cuda {

inline constexpr int delta_warps = 8;

// delta[row] = sum of dout * out over the head's columns: a warp for each row of the launch's heads.
template <class T>
__global__ void attention_delta_kernel(AttentionGrid grid, std::int64_t rows, const T* out, const T* dout,
                                       float* delta) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * delta_warps + threadIdx.x / warp_size;
  float sum = 0;
  if (row < rows) {
    const std::int64_t head = grid.first_head + row / grid.sequence;
    const std::int64_t at = HeadPlace(grid, head).out + row % grid.sequence * grid.width;
    for (std::int64_t i = threadIdx.x % warp_size; i < grid.head_width; i += warp_size) {
      sum += static_cast<float>(out[at + i]) * static_cast<float>(dout[at + i]);
    }
  }
  sum = reduce_warp<Sum>(sum);
  if (row < rows && threadIdx.x % warp_size == 0) delta[row] = sum;
}

// Tiles of queries, keys, values and dout, and one of weights.
template <int rows, int width>
constexpr std::size_t flash_backward_shared = (4 * TileShape<rows, width>::floats +
                                               TileShape<rows, width>::score_floats) *
                                              sizeof(float);

template <int rows, int width>
struct BackwardTiles {
  using Shape = TileShape<rows, width>;
  float *queries, *keys, *values, *dout, *weights;

  __device__ BackwardTiles() {
    queries = dynamic_shared<float>();
    keys = queries + Shape::floats;
    values = keys + Shape::floats;
    dout = values + Shape::floats;
    weights = dout + Shape::floats;
  }
};

// A thread's scores as probabilities after dropout, and gradients of the unscaled scores over the scale.
template <int own>
struct ScoresGradient {
  float weights[own][own];
  float gradients[own][own];
};

// Computes from the tiles p = exp(score - log_sum_exp) and gradient = p (kept dp - delta), dp =
// dout values^T.
template <int rows, int width>
__device__ void scores_gradient(const AttentionGrid& grid, const BackwardTensors<float>& of,
                                std::int64_t head, std::int64_t first_query, std::int64_t first_key,
                                const BackwardTiles<rows, width>& tiles,
                                ScoresGradient<TileShape<rows, width>::own_rows>& result) {
  using Shape = TileShape<rows, width>;
  const int y = static_cast<int>(threadIdx.x) / attention_side;
  const int x = static_cast<int>(threadIdx.x) % attention_side;
  multiply_tiles<rows, width>(tiles.queries, tiles.keys, result.weights);
  multiply_tiles<rows, width>(tiles.dout, tiles.values, result.gradients);
#pragma unroll
  for (int i = 0; i < Shape::own_rows; ++i) {
    const std::int64_t query = first_query + y * Shape::own_rows + i;
    const bool inside = query < grid.sequence;
    const float level = inside ? of.log_sum_exp[head * grid.sequence + query] : 0.0F;
    const float delta = inside ? of.delta[(head - grid.first_head) * grid.sequence + query] : 0.0F;
#pragma unroll
    for (int j = 0; j < Shape::own_rows; ++j) {
      const std::int64_t key = first_key + x + attention_side * j;
      const bool seen = sees(grid, query, key);
      const float factor = kept(grid, head * grid.sequence + query, key);
      const float p = seen ? exponential(result.weights[i][j] * grid.scale - level) : 0.0F;
      result.weights[i][j] = p * factor;
      result.gradients[i][j] = p * (factor * result.gradients[i][j] - delta);
    }
  }
}

// Writes a thread's scores into the tile of weights, with rows of keys (for sums over queries) or of queries.
template <int rows, int width, bool keys_are_rows, int own>
__device__ void store_scores(const float (&scores)[own][own], float* tile) {
  using Shape = TileShape<rows, width>;
  const int y = static_cast<int>(threadIdx.x) / attention_side;
  const int x = static_cast<int>(threadIdx.x) % attention_side;
#pragma unroll
  for (int i = 0; i < own; ++i) {
#pragma unroll
    for (int j = 0; j < own; ++j) {
      const int query = y * own + i;
      const int key = x + attention_side * j;
      tile[keys_are_rows ? key * Shape::score_stride + query : query * Shape::score_stride + key] =
          scores[i][j];
    }
  }
}

// Blocks are (key head, tile of keys). dvalues = weights^T dout, dkeys = scale gradients^T queries, summed
// over the query heads of the group in order.
template <int rows, int width>
__global__ void __launch_bounds__(attention_threads, 1)
    attention_backward_keys_kernel(AttentionGrid all_heads, BackwardTensors<float> of) {
  using Shape = TileShape<rows, width>;
  const BackwardTiles<rows, width> tiles;
  const std::int64_t first_head = all_heads.first_head + blockIdx.x * all_heads.group;
  const AttentionGrid grid = all_heads.of_head(first_head);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * rows;
  const std::int64_t at = HeadPlace(grid, first_head).keys(grid, first_head);

  OwnResults<rows, width> dkeys;
  OwnResults<rows, width> dvalues;
  load_tile<rows, width>(grid, of.qkv + at, grid.stride, first, tiles.keys);
  load_tile<rows, width>(grid, of.qkv + at + grid.key_width, grid.stride, first, tiles.values);
  for (std::int64_t head = first_head; head < first_head + grid.group; ++head) {
    const HeadPlace place(grid, head);
    for (std::int64_t query = grid.causal ? first : 0; query < grid.sequence; query += rows) {
      if (grid.first_key(query) >= first + rows) break;
      load_tile<rows, width>(grid, of.qkv + place.queries(grid, head), grid.stride, query, tiles.queries);
      load_tile<rows, width>(grid, of.dout + place.out, grid.width, query, tiles.dout);
      __syncthreads();
      ScoresGradient<Shape::own_rows> scores;
      scores_gradient(grid, of, head, query, first, tiles, scores);
      store_scores<rows, width, true>(scores.weights, tiles.weights);
      __syncthreads();
      dvalues.add_product(tiles.weights, tiles.dout);
      __syncthreads();
      store_scores<rows, width, true>(scores.gradients, tiles.weights);
      __syncthreads();
      dkeys.add_product(tiles.weights, tiles.queries);
      __syncthreads();
    }
  }
  float scales[Shape::own_rows];
  float ones[Shape::own_rows];
#pragma unroll
  for (int i = 0; i < Shape::own_rows; ++i) {
    scales[i] = grid.scale;
    ones[i] = 1;
  }
  dkeys.store(grid, scales, of.dqkv + at, grid.stride, first);
  dvalues.store(grid, ones, of.dqkv + at + grid.key_width, grid.stride, first);
}

// Least blocks of the pass over queries on a multiprocessor: the smallest tiles leave shared memory for two.
template <int rows>
inline constexpr int plain_query_blocks = rows <= 16 ? 2 : 1;

// Blocks are (head, tile of queries); the longest causal ones start first. dqueries = scale gradients keys.
template <int rows, int width>
__global__ void __launch_bounds__(attention_threads, plain_query_blocks<rows>)
    attention_backward_queries_kernel(AttentionGrid all_heads, BackwardTensors<float> of) {
  using Shape = TileShape<rows, width>;
  const BackwardTiles<rows, width> tiles;
  const std::int64_t head = all_heads.first_head + blockIdx.x;
  const AttentionGrid grid = all_heads.of_head(head);
  const std::int64_t first = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * rows;
  const HeadPlace place(grid, head);
  const std::int64_t at = place.queries(grid, head), keys_at = place.keys(grid, head);
  const std::int64_t seen = grid.causal && first + rows < grid.sequence ? first + rows : grid.sequence;

  OwnResults<rows, width> dqueries;
  load_tile<rows, width>(grid, of.qkv + at, grid.stride, first, tiles.queries);
  load_tile<rows, width>(grid, of.dout + place.out, grid.width, first, tiles.dout);
  for (std::int64_t key = grid.first_tile(first, rows); key < seen; key += rows) {
    load_tile<rows, width>(grid, of.qkv + keys_at, grid.stride, key, tiles.keys);
    load_tile<rows, width>(grid, of.qkv + keys_at + grid.key_width, grid.stride, key, tiles.values);
    __syncthreads();
    ScoresGradient<Shape::own_rows> scores;
    scores_gradient(grid, of, head, first, key, tiles, scores);
    store_scores<rows, width, false>(scores.gradients, tiles.weights);
    __syncthreads();
    dqueries.add_product(tiles.weights, tiles.keys);
    __syncthreads();
  }
  float scales[Shape::own_rows];
  for (float& scale : scales) scale = grid.scale;
  dqueries.store(grid, scales, of.dqkv + at, grid.stride, first);
}

template <int rows, int width>
void launch_passes(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<float>& of,
                   void* stream) {
  const std::int64_t tiles = blocks_for(grid.sequence, rows);
  constexpr std::size_t shared_bytes = flash_backward_shared<rows, width>;
  launch(attention_backward_keys_kernel<rows, width>, "attention_backward",
         {{heads / grid.group, tiles}, attention_threads, shared_bytes}, stream, grid, of);
  launch(attention_backward_queries_kernel<rows, width>, "attention_backward",
         {{heads, tiles}, attention_threads, shared_bytes}, stream, grid, of);
}

void launch_backward(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<float>& of,
                     void* stream) {
  if (grid.head_width <= 64) return launch_passes<64, 64>(grid, heads, of, stream);
  if (grid.head_width <= 128) return launch_passes<32, 128>(grid, heads, of, stream);
  launch_passes<16, 256>(grid, heads, of, stream);
}

// Computes the gradients of query heads [grid.first_head, grid.first_head + heads) of all samples' heads.
template <class T>
void run_heads(const AttentionGrid& grid, std::int64_t heads, const AttentionGradient<T>& of, float* delta,
               void* stream) {
  const std::int64_t rows = heads * grid.sequence;
  launch(attention_delta_kernel<T>, "attention_backward",
         {{blocks_for(rows, delta_warps)}, delta_warps * warp_size}, stream, grid, rows, of.out, of.dout,
         delta);
  launch_backward(grid, heads, BackwardTensors<T>{of.qkv, of.log_sum_exp, of.dout, delta, of.dqkv}, stream);
}

template <class T>
void flash_attention_backward(const AttentionShape& shape, const AttentionGradient<T>& of, void* stream) {
  constexpr std::int64_t most_delta_bytes = 8 << 20;
  const std::int64_t all = shape.samples * shape.heads;
  const std::int64_t group = shape.group();
  const std::int64_t group_bytes = group * shape.sequence * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t at_once =
      std::clamp<std::int64_t>(most_delta_bytes / group_bytes, 1, all / group) * group;
  auto* delta = scratch_for<float>(stream, at_once * shape.sequence, "attention_backward");
  AttentionGrid grid =
      attention_grid<T>(shape, is_aligned(of.qkv) && is_aligned(of.dout) && is_aligned(of.dqkv));
  for (grid.first_head = 0; grid.first_head < all; grid.first_head += at_once) {
    run_heads(grid, std::min(at_once, all - grid.first_head), of, delta, stream);
  }
}

template void flash_attention_backward(const AttentionShape&, const AttentionGradient<float>&, void*);
template void flash_attention_backward(const AttentionShape&, const AttentionGradient<Bfloat16>&, void*);
template void flash_attention_backward(const AttentionShape&, const AttentionGradient<Float16>&, void*);

STOWAGE_CUDA_KERNEL(attention_delta_kernel<float>);
STOWAGE_CUDA_KERNEL(attention_delta_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(attention_delta_kernel<Float16>);
STOWAGE_CUDA_KERNEL(attention_backward_keys_kernel<64, 64>);
STOWAGE_CUDA_KERNEL(attention_backward_keys_kernel<32, 128>);
STOWAGE_CUDA_KERNEL(attention_backward_keys_kernel<16, 256>);
STOWAGE_CUDA_KERNEL(attention_backward_queries_kernel<64, 64>);
STOWAGE_CUDA_KERNEL(attention_backward_queries_kernel<32, 128>);
STOWAGE_CUDA_KERNEL(attention_backward_queries_kernel<16, 256>);

}  // namespace stowage::cuda
