#include <limits>

#include "kernels/cuda/attention_fragments.h"
#include "kernels/cuda/attention_scores.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared_memory.h"

namespace stowage::cuda {

inline constexpr int scored_queries = 64;  // queries of a streamed tile

// A tile of keys, one of queries, and the queries' levels.
template <int width>
constexpr std::size_t tensor_key_sums_shared = (fragment_tile<width>(owned_rows) +
                                                fragment_tile<width>(scored_queries)) *
                                                   sizeof(std::uint16_t) +
                                               scored_queries * sizeof(float);

// A probability is 2^(binary_scale score - level): 0 for queries at padding and behind the sequence's end.
__device__ inline float level_of(const AttentionGrid& grid, const float* log_sum_exp, std::int64_t query) {
  constexpr float one_over_ln2 = 1.44269504F;
  const bool counts =
      query < grid.sequence && (grid.seen == nullptr || grid.seen[grid.first_token + query] != 0);
  return counts ? log_sum_exp[query] * one_over_ln2 : std::numeric_limits<float>::infinity();
}

// Adds the probabilities of 16 queries to a lane's parts of the sums of its two keys.
__device__ inline void add_probabilities(const AttentionGrid& grid, const SumsFragment& scores,
                                         const float* levels, unsigned seen, float (&sums)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float score = scores.values[score_index(i, j)];
      const float level = levels[streamed_row() + j];
      const float power = power_of_two(score * grid.binary_scale - level);
      const bool counts = (seen >> (4 * i + j) & 1U) != 0 && level < std::numeric_limits<float>::infinity();
      sums[i] += counts ? power : 0.0F;
    }
  }
}

// Blocks are (head, tile of keys). A warp owns 16 keys; tiles of queries stream past.
template <class T, int width>
__global__ void __launch_bounds__(tensor_threads, tensor_blocks)
    tensor_key_sums_kernel(AttentionGrid all_heads, const T* qkv, const float* log_sum_exp, float* by_head) {
  auto* const keys = dynamic_shared<T>();
  T* const queries = keys + fragment_tile<width>(owned_rows);
  auto* const levels = reinterpret_cast<float*>(queries + fragment_tile<width>(scored_queries));
  const std::int64_t head = blockIdx.x;
  const AttentionGrid grid = all_heads.of_head(head);
  const HeadPlace place(grid, head);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * owned_rows;
  const int own = static_cast<int>(threadIdx.x) / warp_size * block_side;
  const std::int64_t first_key = first + own;
  load_rows<width>(grid, qkv + place.keys(grid, head), grid.stride, first, owned_rows, keys);
  __syncthreads();
  const OwnRows<T, width> own_keys(keys + fragment_tile<width>(own));
  float sums[2] = {0, 0};
  for (std::int64_t tile = grid.causal ? first : 0; tile < grid.sequence; tile += scored_queries) {
    __syncthreads();  // waits until all have read the previous tile
    load_rows<width>(grid, qkv + place.queries(grid, head), grid.stride, tile, scored_queries, queries);
    if (threadIdx.x < scored_queries)
      levels[threadIdx.x] = level_of(grid, log_sum_exp + place.row, tile + threadIdx.x);
    __syncthreads();
#pragma unroll 1
    for (int row = 0; row < scored_queries; row += block_side) {
      const std::int64_t query = tile + row;
      if (query >= grid.sequence || first_key >= grid.sequence) break;
      if (grid.causal && query + block_side <= first_key) continue;
      const SumsFragment scores = products_of_rows(own_keys, queries + fragment_tile<width>(row));
      add_probabilities(grid, scores, levels + row, seen_scores<true>(grid, first_key, query), sums);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sum = reduce_warp<Sum>(sums[i], 4);
    const std::int64_t key = first_key + own_row(i);
    if (lane_pair() == 0 && key < grid.sequence) by_head[place.row + key] = sum;
  }
}

template <class T, int width>
void launch_tensor_key_sums(const AttentionShape& shape, const T* qkv, const float* log_sum_exp,
                            float* by_head, void* stream) {
  const Extent blocks{shape.samples * shape.heads, blocks_for(shape.sequence, owned_rows)};
  launch(tensor_key_sums_kernel<T, width>, "attention_scores",
         {blocks, tensor_threads, tensor_key_sums_shared<width>}, stream,
         attention_grid<T>(shape, is_aligned(qkv)), qkv, log_sum_exp, by_head);
}

template <class T>
void tensor_key_sums(const AttentionShape& shape, const T* qkv, const float* log_sum_exp, float* by_head,
                     void* stream) {
  const std::int64_t width = shape.head_width();
  if (width <= 64) return launch_tensor_key_sums<T, 64>(shape, qkv, log_sum_exp, by_head, stream);
  if (width <= 128) return launch_tensor_key_sums<T, 128>(shape, qkv, log_sum_exp, by_head, stream);
  launch_tensor_key_sums<T, 256>(shape, qkv, log_sum_exp, by_head, stream);
}

template void tensor_key_sums(const AttentionShape&, const Bfloat16*, const float*, float*, void*);
template void tensor_key_sums(const AttentionShape&, const Float16*, const float*, float*, void*);

STOWAGE_CUDA_KERNEL(tensor_key_sums_kernel<Bfloat16, 64>);
STOWAGE_CUDA_KERNEL(tensor_key_sums_kernel<Bfloat16, 128>);
STOWAGE_CUDA_KERNEL(tensor_key_sums_kernel<Bfloat16, 256>);
STOWAGE_CUDA_KERNEL(tensor_key_sums_kernel<Float16, 64>);
STOWAGE_CUDA_KERNEL(tensor_key_sums_kernel<Float16, 128>);
STOWAGE_CUDA_KERNEL(tensor_key_sums_kernel<Float16, 256>);

}  // namespace stowage::cuda
