#include <cmath>
#include <limits>

#include "kernels/cuda/attention_fragments.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared_memory.h"

namespace stowage::cuda {

inline constexpr float hidden = -std::numeric_limits<float>::infinity();

// Keys of a tile: their scores, the results and the own rows share a lane's registers.
template <int width>
inline constexpr int streamed_keys = width <= 128 ? 64 : 32;

// Tiles of queries, keys and values.
template <int width>
constexpr std::size_t forward_shared_bytes = (fragment_tile<width>(owned_rows) +
                                              2 * fragment_tile<width>(streamed_keys<width>)) *
                                             sizeof(std::uint16_t);

// State of a lane's two rows: the largest unscaled score seen so far, and the lane's part of the sum of
// exp(scale (score - largest)).
struct LaneStates {
  float largest[2] = {hidden, hidden}, sum[2] = {0, 0};
};

// Turns scores into weights by the online softmax of FlashAttention-2 (section 3.1); factors[i] is the factor
// of older sums of row i.
template <int blocks>
__device__ void weigh(const AttentionGrid& grid, SumsFragment (&scores)[blocks], LaneStates& states,
                      float (&factors)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float largest = states.largest[i];
#pragma unroll
    for (int j = 0; j < 4 * blocks; ++j)
      largest = Largest::of(largest, scores[j / 4].values[score_index(i, j % 4)]);
    largest = reduce_warp<Largest>(largest, 4);
    // Hidden: no key was seen, and every weight is 2^-infinity.
    const float level = largest == hidden ? 0.0F : largest;
    factors[i] = power_of_two((states.largest[i] - level) * grid.binary_scale);
    float sum = states.sum[i] * factors[i];
#pragma unroll
    for (int j = 0; j < 4 * blocks; ++j) {
      float& score = scores[j / 4].values[score_index(i, j % 4)];
      score = power_of_two((score - level) * grid.binary_scale);
      sum += score;
    }
    states.largest[i] = largest;
    states.sum[i] = sum;
  }
}

// Every score whose bit is not set becomes `value`; the others are multiplied by `factor`.
__device__ inline void choose(unsigned bits, float factor, float value, SumsFragment& scores) {
  if (bits == 0xffU && factor == 1.0F) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& score = scores.values[score_index(i, j)];
      score = (bits >> (4 * i + j) & 1U) != 0 ? score * factor : value;
    }
  }
}

// Adds one tile of keys to the results of 16 queries.
template <class T, int width>
class ForwardRows {
 public:
  __device__ ForwardRows(const AttentionGrid& grid, std::int64_t head_row, std::int64_t first)
      : grid_(grid), head_row_(head_row), first_(first) {
    const std::int64_t last = first + block_side;
    seen_ = first >= grid.sequence ? 0 : grid.causal && last < grid.sequence ? last : grid.sequence;
  }

  __device__ void add(const OwnRows<T, width>& queries, std::int64_t first_key, const T* keys,
                      const T* values) {
    if (first_key >= seen_ || first_key + streamed_keys<width> <= grid_.first_key(first_)) return;
    SumsFragment scores[blocks];
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      const std::int64_t key = first_key + b * block_side;
      if (key < seen_) scores[b] = products_of_rows(queries, keys + fragment_tile<width>(b * block_side));
      choose(seen_scores<false>(grid_, first_, key), 1.0F, hidden, scores[b]);
    }
    float factors[2];
    weigh(grid_, scores, states_, factors);
#pragma unroll
    for (SumsFragment& result : results_) {
#pragma unroll
      for (int k = 0; k < 8; ++k) result.values[k] *= factors[k / 2 % 2];
    }
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      const std::int64_t key = first_key + b * block_side;
      if (key >= seen_) continue;
      choose(kept_scores<false>(grid_, head_row_, first_, key), grid_.mask.scale(), 0.0F, scores[b]);
      add_weighted_rows<width>(rounded<T>(scores[b]), values + fragment_tile<width>(b * block_side),
                               results_);
    }
  }

  __device__ void store(T* staging, T* out, float* log_sum_exp) const {
    float factors[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = reduce_warp<Sum>(states_.sum[i], 4);
      const std::int64_t row = first_ + own_row(i);
      factors[i] = 1.0F / sum;
      if (lane_pair() == 0 && row < grid_.sequence)
        log_sum_exp[head_row_ + row] = states_.largest[i] * grid_.scale + std::log(sum);
    }
    store_results<width>(grid_, results_, factors, staging, out, grid_.width, first_, grid_.head_width);
  }

 private:
  static constexpr int blocks = streamed_keys<width> / block_side;

  const AttentionGrid& grid_;
  std::int64_t head_row_, first_, seen_;
  LaneStates states_;
  SumsFragment results_[width / block_side];
};

// Blocks are (head, tile of queries); the longest causal ones start first.
template <class T, int width>
__global__ void __launch_bounds__(tensor_threads, tensor_blocks)
    flash_attention_tensor_kernel(AttentionGrid all_heads, const T* qkv, T* out, float* log_sum_exp) {
  auto* queries = dynamic_shared<T>();
  T* const keys = queries + fragment_tile<width>(owned_rows);
  T* const values = keys + fragment_tile<width>(streamed_keys<width>);
  const std::int64_t head = all_heads.first_head + blockIdx.x;
  const AttentionGrid grid = all_heads.of_head(head);
  const HeadPlace place(grid, head);
  const T* const key_rows = qkv + place.keys(grid, head);
  const std::int64_t first = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * owned_rows;
  const std::int64_t last = first + owned_rows;
  const std::int64_t seen = grid.causal && last < grid.sequence ? last : grid.sequence;
  const int own = static_cast<int>(threadIdx.x) / warp_size * block_side;

  load_rows<width>(grid, qkv + place.queries(grid, head), grid.stride, first, owned_rows, queries);
  __syncthreads();
  const OwnRows<T, width> own_queries(queries + fragment_tile<width>(own));
  ForwardRows<T, width> results(grid, place.row, first + own);
  for (std::int64_t key = grid.first_tile(first, streamed_keys<width>); key < seen;
       key += streamed_keys<width>) {
    __syncthreads();  // waits until all have read the previous tiles
    load_rows<width>(grid, key_rows, grid.stride, key, streamed_keys<width>, keys);
    load_rows<width>(grid, key_rows + grid.key_width, grid.stride, key, streamed_keys<width>, values);
    __syncthreads();
    results.add(own_queries, key, keys, values);
  }
  results.store(queries + fragment_tile<width>(own), out + place.out, log_sum_exp);
}

template <class T, int width>
void launch_forward(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp, void* stream) {
  const Extent blocks{shape.samples * shape.heads, blocks_for(shape.sequence, owned_rows)};
  launch(flash_attention_tensor_kernel<T, width>, "attention",
         {blocks, tensor_threads, forward_shared_bytes<width>}, stream,
         attention_grid<T>(shape, is_aligned(qkv) && is_aligned(out)), qkv, out, log_sum_exp);
}

template <class T>
void tensor_flash_attention(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp,
                            void* stream) {
  if (shape.head_width() <= 64) return launch_forward<T, 64>(shape, qkv, out, log_sum_exp, stream);
  if (shape.head_width() <= 128) return launch_forward<T, 128>(shape, qkv, out, log_sum_exp, stream);
  launch_forward<T, 256>(shape, qkv, out, log_sum_exp, stream);
}

template void tensor_flash_attention(const AttentionShape&, const Bfloat16*, Bfloat16*, float*, void*);
template void tensor_flash_attention(const AttentionShape&, const Float16*, Float16*, float*, void*);

STOWAGE_CUDA_KERNEL(flash_attention_tensor_kernel<Bfloat16, 64>);
STOWAGE_CUDA_KERNEL(flash_attention_tensor_kernel<Bfloat16, 128>);
STOWAGE_CUDA_KERNEL(flash_attention_tensor_kernel<Bfloat16, 256>);
STOWAGE_CUDA_KERNEL(flash_attention_tensor_kernel<Float16, 64>);
STOWAGE_CUDA_KERNEL(flash_attention_tensor_kernel<Float16, 128>);
STOWAGE_CUDA_KERNEL(flash_attention_tensor_kernel<Float16, 256>);

}  // namespace stowage::cuda
