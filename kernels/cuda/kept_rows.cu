#include "kernels/cuda/kept_rows.h"

#include <bit>
#include <limits>

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/math/score_order.h"

namespace stowage::cuda {

inline constexpr int top_threads = 256;
inline constexpr int top_warps = top_threads / warp_size;
inline constexpr int kept_rows_threads = 128;

// The orders of a sample's scores.
struct SampleOrders {
  std::int64_t sequence;
  const float* scores;
  const std::int32_t* seen;  // or null

  __device__ std::uint32_t operator[](std::int64_t i) const {
    return score_order(scores[i], seen == nullptr || seen[i] != 0);
  }
  // Returns how many are at least `bound`. Requires all threads of the block.
  __device__ std::int32_t count_from(std::uint32_t bound, std::int32_t* shared) const {
    std::int32_t count = 0;
    for (std::int64_t i = threadIdx.x; i < sequence; i += top_threads) count += (*this)[i] >= bound ? 1 : 0;
    return reduce_block<Sum>(count, shared);
  }
};

// Votes of a block's threads: those of threads with lower numbers, and all.
struct Votes {
  std::int32_t before = 0, all = 0;
};

// Requires all threads of the block. `of_warps` is free again when the call returns.
__device__ inline Votes count_votes(bool yes, std::int32_t* of_warps) {
  const unsigned votes = ballot(yes);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  if (lane == 0) of_warps[warp] = std::popcount(votes);
  __syncthreads();
  Votes count{std::popcount(votes & ((1U << lane) - 1)), 0};
  for (unsigned w = 0; w < top_warps; ++w) {
    if (w < warp) count.before += of_warps[w];
    count.all += of_warps[w];
  }
  __syncthreads();
  return count;
}

// Finds the order of the last kept token bit by bit, then writes the tokens above it, and as many of those
// that equal it as still fit, from the lowest position on. Blocks are samples.
__global__ void __launch_bounds__(top_threads)
    top_tokens_kernel(TopTokensShape shape, const float* scores, std::int32_t* rows) {
  __shared__ std::int32_t shared[top_warps];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * shape.sequence;
  const std::int32_t* const seen = shape.seen == nullptr ? nullptr : shape.seen + first;
  const SampleOrders orders{shape.sequence, scores + first, seen};
  const auto keep = static_cast<std::int32_t>(shape.keep);
  std::uint32_t last = 0;
  for (std::uint32_t bit = 1U << 31U; bit != 0; bit >>= 1U) {
    if (orders.count_from(last | bit, shared) >= keep) last |= bit;
  }
  const std::int32_t ties = last == ~0U ? keep : keep - orders.count_from(last + 1, shared);
  rows += static_cast<std::int64_t>(blockIdx.x) * keep;
  std::int32_t above_before = 0, equal_before = 0;
  for (std::int64_t from = 0; from < shape.sequence; from += top_threads) {
    const std::int64_t i = from + threadIdx.x;
    const std::uint32_t order = i < shape.sequence ? orders[i] : 0;
    const bool is_above = i < shape.sequence && order > last;
    const bool is_equal = i < shape.sequence && order == last;
    const Votes above = count_votes(is_above, shared);
    const Votes equal = count_votes(is_equal, shared);
    const std::int32_t equals = equal_before + equal.before;
    const std::int32_t place = above_before + above.before + (equals < ties ? equals : ties);
    if (is_above || (is_equal && equals < ties)) rows[place] = static_cast<std::int32_t>(first + i);
    above_before += above.all;
    equal_before += equal.all;
  }
}

// Returns the place of `row` among `kept` rising numbers, -1 if it is none of them.
__device__ inline std::int64_t place_among(const std::int32_t* rows, std::int64_t kept, std::int64_t row) {
  std::int64_t begin = 0, end = kept;
  while (begin < end) {
    const std::int64_t middle = (begin + end) / 2;
    if (rows[middle] < row)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin < kept && rows[begin] == row ? begin : -1;
}

// Blocks are kept rows.
template <class T>
__global__ void take_rows_kernel(KeptRows shape, const T* x, const std::int32_t* rows, T* y, bool aligned) {
  const std::int64_t index = blockIdx.x;
  const std::int64_t row = rows[index];
  const bool known = row >= 0 && row < shape.tokens;
  const T* const from = x + (known ? row : 0) * shape.width;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>; i < shape.width; i += step) {
    const std::int64_t left = shape.width - i;
    Pack<T> pack = load_pack(from + i, left, aligned);
    if (!known) {
      for (float& value : pack.values) value = std::numeric_limits<float>::quiet_NaN();
    }
    store_pack(y + index * shape.width + i, left, aligned, pack);
  }
}

// Writes x plus y in the kept rows; null stands for an x of zeros. Blocks are rows of the matrix.
template <class T>
__global__ void add_rows_kernel(KeptRows shape, const T* x, const T* y, const std::int32_t* rows, T* to,
                                bool aligned) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t index = place_among(rows, shape.kept, row);
  if (index < 0 && to == x) return;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>; i < shape.width; i += step) {
    const std::int64_t left = shape.width - i;
    Pack<T> pack = {};
    if (x != nullptr) pack = load_pack(x + row * shape.width + i, left, aligned);
    if (index >= 0) {
      const Pack<T> more = load_pack(y + index * shape.width + i, left, aligned);
      for (int k = 0; k < pack_size<T>; ++k)
        pack.values[k] = x == nullptr ? more.values[k] : pack.values[k] + more.values[k];
    }
    store_pack(to + row * shape.width + i, left, aligned, pack);
  }
}

void top_tokens(const TopTokensShape& shape, const float* scores, std::int32_t* rows, void* stream) {
  launch(top_tokens_kernel, "top_tokens", {{shape.samples}, top_threads}, stream, shape, scores, rows);
}

template <class T>
void take_rows(const KeptRows& shape, const T* x, const std::int32_t* rows, T* y, void* stream) {
  launch(take_rows_kernel<T>, "take_rows", {{shape.kept}, kept_rows_threads}, stream, shape, x, rows, y,
         rows_are_aligned<T>(shape.width, x, y));
}

template <class T>
void take_rows_backward(const KeptRows& shape, const T* dy, const std::int32_t* rows, T* dx, void* stream) {
  launch(add_rows_kernel<T>, "take_rows_backward", {{shape.tokens}, kept_rows_threads}, stream, shape,
         static_cast<const T*>(nullptr), dy, rows, dx, rows_are_aligned<T>(shape.width, dy, dx));
}

template <class T>
void add_rows(const KeptRows& shape, const T* x, const T* y, const std::int32_t* rows, T* to, void* stream) {
  launch(add_rows_kernel<T>, "add_rows", {{shape.tokens}, kept_rows_threads}, stream, shape, x, y, rows, to,
         rows_are_aligned<T>(shape.width, x, y, to));
}

template void take_rows(const KeptRows&, const float*, const std::int32_t*, float*, void*);
template void take_rows(const KeptRows&, const Bfloat16*, const std::int32_t*, Bfloat16*, void*);
template void take_rows(const KeptRows&, const Float16*, const std::int32_t*, Float16*, void*);
template void take_rows_backward(const KeptRows&, const float*, const std::int32_t*, float*, void*);
template void take_rows_backward(const KeptRows&, const Bfloat16*, const std::int32_t*, Bfloat16*, void*);
template void take_rows_backward(const KeptRows&, const Float16*, const std::int32_t*, Float16*, void*);
template void add_rows(const KeptRows&, const float*, const float*, const std::int32_t*, float*, void*);
template void add_rows(const KeptRows&, const Bfloat16*, const Bfloat16*, const std::int32_t*, Bfloat16*,
                       void*);
template void add_rows(const KeptRows&, const Float16*, const Float16*, const std::int32_t*, Float16*, void*);

STOWAGE_CUDA_KERNEL(top_tokens_kernel);
STOWAGE_CUDA_KERNEL(take_rows_kernel<float>);
STOWAGE_CUDA_KERNEL(take_rows_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(take_rows_kernel<Float16>);
STOWAGE_CUDA_KERNEL(add_rows_kernel<float>);
STOWAGE_CUDA_KERNEL(add_rows_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(add_rows_kernel<Float16>);

}  // namespace stowage::cuda
