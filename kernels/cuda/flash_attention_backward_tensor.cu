#include <cmath>
#include <limits>

#include "kernels/cuda/attention_fragments.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared_memory.h"

namespace stowage::cuda {

// Rows of a streamed tile: as many elements for every width.
template <int width>
inline constexpr int streamed_rows = 64 * 64 / width;

// Columns of the results that a block of the pass over keys owns: two results share a lane's registers.
template <int width>
inline constexpr int owned_columns = width <= 128 ? width : 128;

// Least blocks of the pass over queries on a multiprocessor, whose rows of one result need fewer registers.
template <int width>
inline constexpr int tensor_query_blocks = width <= 64 ? 3 : tensor_blocks;

// Two tiles of own rows and two of streamed ones, and of the streamed rows, level and delta.
template <int width>
constexpr std::size_t backward_shared_bytes = 2 *
                                                  (fragment_tile<width>(owned_rows) +
                                                   fragment_tile<width>(streamed_rows<width>)) *
                                                  sizeof(std::uint16_t) +
                                              2 * streamed_rows<width> * sizeof(float);

template <class T, int width>
struct BackwardMemory {
  T *own, *own_other, *streamed, *streamed_other;
  float *levels, *deltas;

  __device__ BackwardMemory() {
    own = dynamic_shared<T>();
    own_other = own + fragment_tile<width>(owned_rows);
    streamed = own_other + fragment_tile<width>(owned_rows);
    streamed_other = streamed + fragment_tile<width>(streamed_rows<width>);
    levels = reinterpret_cast<float*>(streamed_other + fragment_tile<width>(streamed_rows<width>));
    deltas = levels + streamed_rows<width>;
  }
};

// Values of a query that backward needs beside its rows: a probability is 2^(binary_scale score - level), and
// 0 behind the sequence's end.
struct QueryState {
  float level, delta;

  template <class T>
  __device__ QueryState(const AttentionGrid& grid, const BackwardTensors<T>& of, std::int64_t head,
                        std::int64_t query) {
    constexpr float one_over_ln2 = 1.44269504F;
    const bool inside = query < grid.sequence;
    level = inside ? of.log_sum_exp[head * grid.sequence + query] * one_over_ln2
                   : std::numeric_limits<float>::infinity();
    delta = inside ? of.delta[(head - grid.first_head) * grid.sequence + query] : 0.0F;
  }
  __device__ QueryState(float query_level, float query_delta) : level(query_level), delta(query_delta) {}
};

// Turns score (i, j) of a lane into the probability after dropout, and dout values^T into the gradient of the
// score over the scale: p (kept dp - delta).
__device__ inline void to_gradient(const AttentionGrid& grid, const QueryState& query, unsigned seen,
                                   unsigned kept, float& score, float& gradient) {
  const float p = seen != 0 ? power_of_two(score * grid.binary_scale - query.level) : 0.0F;
  const float factor = kept != 0 ? grid.mask.scale() : 0.0F;
  score = p * factor;
  gradient = p * (factor * gradient - query.delta);
}

// Blocks are (key head, tile of keys, part of the columns). dvalues = weights^T dout, dkeys = scale
// gradients^T queries, summed over the query heads of the group in order (FlashAttention-2, algorithm 2, but
// for its line 15: queries have their own pass, not atomics).
template <class T, int width>
__global__ void __launch_bounds__(tensor_threads, tensor_blocks)
    attention_backward_keys_tensor_kernel(AttentionGrid all_heads, BackwardTensors<T> of) {
  constexpr int columns = owned_columns<width>;
  const BackwardMemory<T, width> memory;
  const std::int64_t first_head = all_heads.first_head + blockIdx.x * all_heads.group;
  const AttentionGrid grid = all_heads.of_head(first_head);
  const std::int64_t at = HeadPlace(grid, first_head).keys(grid, first_head);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * owned_rows;
  const int first_column = static_cast<int>(blockIdx.z) * columns;
  const int own = static_cast<int>(threadIdx.x) / warp_size * block_side;
  const std::int64_t first_key = first + own;

  load_rows<width>(grid, of.qkv + at, grid.stride, first, owned_rows, memory.own);
  load_rows<width>(grid, of.qkv + at + grid.key_width, grid.stride, first, owned_rows, memory.own_other);
  __syncthreads();
  const OwnRows<T, width> keys(memory.own + fragment_tile<width>(own));
  const OwnRows<T, width> values(memory.own_other + fragment_tile<width>(own));
  SumsFragment dkeys[columns / block_side];
  SumsFragment dvalues[columns / block_side];
  for (std::int64_t head = first_head; head < first_head + grid.group; ++head) {
    const HeadPlace place(grid, head);
    for (std::int64_t tile = grid.causal ? first : 0; tile < grid.sequence; tile += streamed_rows<width>) {
      if (grid.first_key(tile) >= first + owned_rows) break;
      __syncthreads();  // waits until all have read the previous tiles
      load_rows<width>(grid, of.qkv + place.queries(grid, head), grid.stride, tile, streamed_rows<width>,
                       memory.streamed);
      load_rows<width>(grid, of.dout + place.out, grid.width, tile, streamed_rows<width>,
                       memory.streamed_other);
      if (threadIdx.x < streamed_rows<width>) {
        const QueryState query(grid, of, head, tile + threadIdx.x);
        memory.levels[threadIdx.x] = query.level;
        memory.deltas[threadIdx.x] = query.delta;
      }
      __syncthreads();
#pragma unroll 1
      for (int row = 0; row < streamed_rows<width>; row += block_side) {
        const std::int64_t query = tile + row;
        if (query >= grid.sequence || first_key >= grid.sequence) break;
        if (grid.causal && query + block_side <= first_key) continue;
        if (grid.first_key(query) >= first_key + block_side) break;
        const T* const queries = memory.streamed + fragment_tile<width>(row);
        const T* const dout = memory.streamed_other + fragment_tile<width>(row);
        SumsFragment weights = products_of_rows(keys, queries);
        SumsFragment gradients = products_of_rows(values, dout);
        const unsigned seen = seen_scores<true>(grid, first_key, query);
        const unsigned kept = kept_scores<true>(grid, place.row, first_key, query);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const QueryState state(memory.levels[row + streamed_row() + j],
                                 memory.deltas[row + streamed_row() + j]);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const unsigned bit = 1U << (4 * i + j);
            to_gradient(grid, state, seen & bit, kept & bit, weights.values[score_index(i, j)],
                        gradients.values[score_index(i, j)]);
          }
        }
        add_weighted_rows<width>(rounded<T>(weights), dout + first_column, dvalues);
        add_weighted_rows<width>(rounded<T>(gradients), queries + first_column, dkeys);
      }
    }
  }
  const float scales[2] = {grid.scale, grid.scale};
  const float ones[2] = {1, 1};
  const std::int64_t left = grid.head_width - first_column;
  T* const to = of.dqkv + at + first_column;
  store_results<width>(grid, dkeys, scales, memory.own + fragment_tile<width>(own), to, grid.stride,
                       first_key, left);
  store_results<width>(grid, dvalues, ones, memory.own_other + fragment_tile<width>(own), to + grid.key_width,
                       grid.stride, first_key, left);
}

// Blocks are (head, tile of queries); the longest causal ones start first. dqueries = scale gradients keys.
template <class T, int width>
__global__ void __launch_bounds__(tensor_threads, tensor_query_blocks<width>)
    attention_backward_queries_tensor_kernel(AttentionGrid all_heads, BackwardTensors<T> of) {
  const BackwardMemory<T, width> memory;
  const std::int64_t head = all_heads.first_head + blockIdx.x;
  const AttentionGrid grid = all_heads.of_head(head);
  const HeadPlace place(grid, head);
  const std::int64_t at = place.queries(grid, head);
  const std::int64_t first = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * owned_rows;
  const std::int64_t last = first + owned_rows;
  const std::int64_t seen_keys = grid.causal && last < grid.sequence ? last : grid.sequence;
  const int own = static_cast<int>(threadIdx.x) / warp_size * block_side;
  const std::int64_t first_query = first + own;

  load_rows<width>(grid, of.qkv + at, grid.stride, first, owned_rows, memory.own);
  load_rows<width>(grid, of.dout + place.out, grid.width, first, owned_rows, memory.own_other);
  __syncthreads();
  const OwnRows<T, width> queries(memory.own + fragment_tile<width>(own));
  const OwnRows<T, width> dout(memory.own_other + fragment_tile<width>(own));
  const QueryState states[2] = {{grid, of, head, first_query + own_row(0)},
                                {grid, of, head, first_query + own_row(1)}};
  SumsFragment dqueries[width / block_side];
  for (std::int64_t tile = grid.first_tile(first, streamed_rows<width>); tile < seen_keys;
       tile += streamed_rows<width>) {
    __syncthreads();  // waits until all have read the previous tiles
    load_rows<width>(grid, of.qkv + place.keys(grid, head), grid.stride, tile, streamed_rows<width>,
                     memory.streamed);
    load_rows<width>(grid, of.qkv + place.keys(grid, head) + grid.key_width, grid.stride, tile,
                     streamed_rows<width>, memory.streamed_other);
    __syncthreads();
#pragma unroll 1
    for (int row = 0; row < streamed_rows<width>; row += block_side) {
      const std::int64_t key = tile + row;
      if (key >= grid.sequence || first_query >= grid.sequence) break;
      if (grid.causal && key >= first_query + block_side) break;
      if (key + block_side <= grid.first_key(first_query)) continue;
      const T* const keys = memory.streamed + fragment_tile<width>(row);
      SumsFragment weights = products_of_rows(queries, keys);
      SumsFragment gradients = products_of_rows(dout, memory.streamed_other + fragment_tile<width>(row));
      const unsigned seen = seen_scores<false>(grid, first_query, key);
      const unsigned kept = kept_scores<false>(grid, place.row, first_query, key);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const unsigned bit = 1U << (4 * i + j);
          to_gradient(grid, states[i], seen & bit, kept & bit, weights.values[score_index(i, j)],
                      gradients.values[score_index(i, j)]);
        }
      }
      add_weighted_rows<width>(rounded<T>(gradients), keys, dqueries);
    }
  }
  const float scales[2] = {grid.scale, grid.scale};
  store_results<width>(grid, dqueries, scales, memory.own + fragment_tile<width>(own), of.dqkv + at,
                       grid.stride, first_query, grid.head_width);
}

template <class T, int width>
void launch_passes(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<T>& of,
                   void* stream) {
  const std::int64_t tiles = blocks_for(grid.sequence, owned_rows);
  const std::int64_t parts = blocks_for(grid.head_width, owned_columns<width>);
  constexpr std::size_t shared_bytes = backward_shared_bytes<width>;
  launch(attention_backward_keys_tensor_kernel<T, width>, "attention_backward",
         {{heads / grid.group, tiles, parts}, tensor_threads, shared_bytes}, stream, grid, of);
  launch(attention_backward_queries_tensor_kernel<T, width>, "attention_backward",
         {{heads, tiles}, tensor_threads, shared_bytes}, stream, grid, of);
}

template <class T>
void launch_tensor_backward(const AttentionGrid& grid, std::int64_t heads, const BackwardTensors<T>& of,
                            void* stream) {
  if (grid.head_width <= 64) return launch_passes<T, 64>(grid, heads, of, stream);
  if (grid.head_width <= 128) return launch_passes<T, 128>(grid, heads, of, stream);
  launch_passes<T, 256>(grid, heads, of, stream);
}

template void launch_tensor_backward(const AttentionGrid&, std::int64_t, const BackwardTensors<Bfloat16>&,
                                     void*);
template void launch_tensor_backward(const AttentionGrid&, std::int64_t, const BackwardTensors<Float16>&,
                                     void*);

STOWAGE_CUDA_KERNEL(attention_backward_keys_tensor_kernel<Bfloat16, 64>);
STOWAGE_CUDA_KERNEL(attention_backward_keys_tensor_kernel<Bfloat16, 128>);
STOWAGE_CUDA_KERNEL(attention_backward_keys_tensor_kernel<Bfloat16, 256>);
STOWAGE_CUDA_KERNEL(attention_backward_queries_tensor_kernel<Bfloat16, 64>);
STOWAGE_CUDA_KERNEL(attention_backward_queries_tensor_kernel<Bfloat16, 128>);
STOWAGE_CUDA_KERNEL(attention_backward_queries_tensor_kernel<Bfloat16, 256>);
STOWAGE_CUDA_KERNEL(attention_backward_keys_tensor_kernel<Float16, 64>);
STOWAGE_CUDA_KERNEL(attention_backward_keys_tensor_kernel<Float16, 128>);
STOWAGE_CUDA_KERNEL(attention_backward_keys_tensor_kernel<Float16, 256>);
STOWAGE_CUDA_KERNEL(attention_backward_queries_tensor_kernel<Float16, 64>);
STOWAGE_CUDA_KERNEL(attention_backward_queries_tensor_kernel<Float16, 128>);
STOWAGE_CUDA_KERNEL(attention_backward_queries_tensor_kernel<Float16, 256>);

}  // namespace stowage::cuda
