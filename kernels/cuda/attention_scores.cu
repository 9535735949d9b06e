#include "kernels/cuda/attention_scores.h"

#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/shared_memory.h"
#include "kernels/math/exponential.h"

namespace stowage::cuda {

inline constexpr int add_heads_threads = 128;

// A tile of keys and one of queries.
template <int rows, int width>
constexpr std::size_t key_sums_shared = 2 * TileShape<rows, width>::floats * sizeof(float);

__device__ inline float probability(const AttentionGrid& grid, const float* log_sum_exp, std::int64_t query,
                                    std::int64_t key, float score) {
  if (!sees(grid, query, key)) return 0;
  if (grid.seen != nullptr && grid.seen[grid.first_token + query] == 0) return 0;
  return exponential(score * grid.scale - log_sum_exp[query]);
}

// Blocks are (head, tile of keys). A thread adds the probabilities of every 16th query to its keys.
template <int rows, int width>
__global__ void __launch_bounds__(attention_threads, 1)
    key_sums_kernel(AttentionGrid all_heads, const float* qkv, const float* log_sum_exp, float* by_head) {
  using Shape = TileShape<rows, width>;
  auto* const keys = dynamic_shared<float>();
  float* const queries = keys + Shape::floats;
  const int x = static_cast<int>(threadIdx.x) % attention_side;
  const std::int64_t head = blockIdx.x;
  const AttentionGrid grid = all_heads.of_head(head);
  const HeadPlace place(grid, head);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * rows;
  const std::int64_t own = first + static_cast<int>(threadIdx.x) / attention_side * Shape::own_rows;
  float sums[Shape::own_rows] = {};
  load_tile<rows, width>(grid, qkv + place.keys(grid, head), grid.stride, first, keys);
  for (std::int64_t query = grid.causal ? first : 0; query < grid.sequence; query += rows) {
    load_tile<rows, width>(grid, qkv + place.queries(grid, head), grid.stride, query, queries);
    __syncthreads();
    float scores[Shape::own_rows][Shape::own_rows];
    multiply_tiles<rows, width>(keys, queries, scores);
#pragma unroll
    for (int i = 0; i < Shape::own_rows; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::own_rows; ++j)
        sums[i] +=
            probability(grid, log_sum_exp + place.row, query + x + attention_side * j, own + i, scores[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < Shape::own_rows; ++i) {
    const float sum = reduce_warp<Sum>(sums[i], attention_side);
    if (x == 0 && own + i < grid.sequence) by_head[place.row + own + i] = sum;
  }
}

// Adds up the heads' sums of a token, in place.
__global__ void add_heads_kernel(std::int64_t heads, std::int64_t sequence, std::int64_t tokens,
                                 float* by_head, float* scores) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= tokens) return;
  float* const sums = by_head + n / sequence * heads * sequence + n % sequence;
  for (std::int64_t distance = 1; distance < heads; distance *= 2) {
    for (std::int64_t head = 0; head + distance < heads; head += 2 * distance)
      sums[head * sequence] += sums[(head + distance) * sequence];
  }
  scores[n] = sums[0];
}

template <int rows, int width>
void launch_key_sums(const AttentionShape& shape, const float* qkv, const float* log_sum_exp, float* by_head,
                     void* stream) {
  const Extent blocks{shape.samples * shape.heads, blocks_for(shape.sequence, rows)};
  launch(key_sums_kernel<rows, width>, "attention_scores",
         {blocks, attention_threads, key_sums_shared<rows, width>}, stream,
         attention_grid<float>(shape, is_aligned(qkv)), qkv, log_sum_exp, by_head);
}

void key_sums(const AttentionShape& shape, const float* qkv, const float* log_sum_exp, float* by_head,
              void* stream) {
  if (shape.head_width() <= 64) return launch_key_sums<64, 64>(shape, qkv, log_sum_exp, by_head, stream);
  if (shape.head_width() <= 128) return launch_key_sums<64, 128>(shape, qkv, log_sum_exp, by_head, stream);
  launch_key_sums<32, 256>(shape, qkv, log_sum_exp, by_head, stream);
}
template <class T>
void key_sums(const AttentionShape& shape, const T* qkv, const float* log_sum_exp, float* by_head,
              void* stream) {
  tensor_key_sums(shape, qkv, log_sum_exp, by_head, stream);
}

template <class T>
void attention_scores(const AttentionShape& shape, const T* qkv, const float* log_sum_exp, float* scores,
                      float* by_head, void* stream) {
  require_head_width(shape);
  key_sums(shape, qkv, log_sum_exp, by_head, stream);
  const std::int64_t tokens = shape.samples * shape.sequence;
  launch(add_heads_kernel, "attention_scores", {{blocks_for(tokens, add_heads_threads)}, add_heads_threads},
         stream, shape.heads, shape.sequence, tokens, by_head, scores);
}

template void attention_scores(const AttentionShape&, const float*, const float*, float*, float*, void*);
template void attention_scores(const AttentionShape&, const Bfloat16*, const float*, float*, float*, void*);
template void attention_scores(const AttentionShape&, const Float16*, const float*, float*, float*, void*);

STOWAGE_CUDA_KERNEL(key_sums_kernel<64, 64>);
STOWAGE_CUDA_KERNEL(key_sums_kernel<64, 128>);
STOWAGE_CUDA_KERNEL(key_sums_kernel<32, 256>);
STOWAGE_CUDA_KERNEL(add_heads_kernel);

}  // namespace stowage::cuda
