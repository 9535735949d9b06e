#include "kernels/cuda/embedding.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/scratch.h"

namespace stowage::cuda {

inline constexpr int embedding_threads = 256;
inline constexpr int rows_per_block = embedding_threads / warp_size;
inline constexpr int segment = 1024;      // tokens looked through between two barriers
inline constexpr int packs_per_lane = 4;  // columns of a row that one warp sums
inline constexpr int rows_in_flight = 4;
inline constexpr std::int64_t least_tokens_per_chunk = 1024;
inline constexpr std::int64_t most_token_chunks = 64;

struct Or {
  __device__ static unsigned of(unsigned a, unsigned b) { return a | b; }
};

template <class T>
__global__ void embedding_kernel(EmbeddingShape shape, const std::int32_t* tokens, const T* table,
                                 const T* positions, T* y, bool aligned) {
  const std::int64_t n = blockIdx.x;
  const std::int64_t token = tokens[n];
  const bool known = token >= 0 && token < shape.vocabulary;
  const T* row = table + (known ? token : 0) * shape.width;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>; i < shape.width; i += step) {
    const std::int64_t left = shape.width - i;
    Pack<T> pack = load_pack(row + i, left, aligned);
    if (positions != nullptr) {
      const Pack<T> more = load_pack(positions + n % shape.sequence * shape.width + i, left, aligned);
      for (int k = 0; k < pack_size<T>; ++k) pack.values[k] += more.values[k];
    }
    if (!known) {
      for (float& value : pack.values) value = std::numeric_limits<float>::quiet_NaN();
    }
    store_pack(y + n * shape.width + i, left, aligned, pack);
  }
}

// One row's columns from `column` on: a lane owns every 32nd pack.
template <class T>
struct RowSum {
  float values[packs_per_lane][pack_size<T>] = {};

  __device__ static std::int64_t offset(int pack) {
    return (static_cast<std::int64_t>(pack) * warp_size + threadIdx.x % warp_size) * pack_size<T>;
  }

  // Adds `count` rows in order; their loads are under way together.
  __device__ void add(const T* const* rows, int count, std::int64_t width, bool aligned) {
#pragma unroll
    for (int p = 0; p < packs_per_lane; ++p) {
      const std::int64_t at = offset(p);
      if (at >= width) break;
      Pack<T> found[rows_in_flight];
#pragma unroll
      for (int r = 0; r < rows_in_flight; ++r) {
        if (r < count) found[r] = load_pack(rows[r] + at, width - at, aligned);
      }
#pragma unroll
      for (int r = 0; r < rows_in_flight; ++r) {
        if (r >= count) continue;
        for (int k = 0; k < pack_size<T>; ++k) values[p][k] += found[r].values[k];
      }
    }
  }

  template <class To>
  __device__ void store(To* to, std::int64_t width, bool aligned) const {
#pragma unroll
    for (int p = 0; p < packs_per_lane; ++p)
      store_packs(to + offset(p), width - offset(p), aligned, values[p]);
  }
};

// Blocks are (8 table rows, columns, chunk of tokens); `to` is [chunks, V, C].
template <class T, class To>
__global__ void embedding_backward_kernel(EmbeddingShape shape, std::int64_t tokens_per_chunk,
                                          const std::int32_t* tokens, const T* dy, To* to, bool aligned) {
  __shared__ std::int32_t shared[segment];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows_per_block + threadIdx.x / warp_size;
  const std::int64_t column =
      static_cast<std::int64_t>(blockIdx.y) * (warp_size * packs_per_lane * pack_size<T>);
  const std::int64_t width = shape.width - column;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.z) * tokens_per_chunk;
  const std::int64_t end = begin + tokens_per_chunk < shape.tokens ? begin + tokens_per_chunk : shape.tokens;
  const int lane = static_cast<int>(threadIdx.x % warp_size);

  RowSum<T> sum;
  const T* waiting[rows_in_flight];
  int count = 0;
  for (std::int64_t first = begin; first < end; first += segment) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < segment; i += embedding_threads) {
      shared[i] = first + i < end ? tokens[first + i] : -1;
    }
    __syncthreads();
    unsigned mine = 0;  // bit k: token 32 k + lane is the row's
    for (int k = 0; k < segment / warp_size; ++k) {
      mine |= (shared[k * warp_size + lane] == row ? 1U : 0U) << static_cast<unsigned>(k);
    }
    const unsigned all = reduce_warp<Or>(mine);
    for (int k = 0; k < segment / warp_size; ++k) {
      if ((all >> static_cast<unsigned>(k) & 1U) == 0) continue;
      for (int i = k * warp_size; i < (k + 1) * warp_size; ++i) {
        // No index: an array that is indexed at run time lies in local memory.
        if (shared[i] != row) continue;
#pragma unroll
        for (int r = 0; r < rows_in_flight; ++r) {
          if (r == count) waiting[r] = dy + (first + i) * shape.width + column;
        }
        if (++count < rows_in_flight) continue;
        sum.add(waiting, count, width, aligned);
        count = 0;
      }
    }
  }
  sum.add(waiting, count, width, aligned);
  if (row >= shape.vocabulary) return;
  sum.store(to + (static_cast<std::int64_t>(blockIdx.z) * shape.vocabulary + row) * shape.width + column,
            width, aligned);
}

// Of one thread: whole packs of both types.
template <class T, class From>
inline constexpr int elements_in_order = pack_size<T> < pack_size<From> ? pack_size<From> : pack_size<T>;

// to[i] = sum over `rows` of from[row * count + i], in order. For position_backward and the token chunks.
template <class T, class From>
__global__ void sum_in_order_kernel(std::int64_t rows, std::int64_t count, const From* from, T* to,
                                    bool aligned) {
  constexpr int size = elements_in_order<T, From>;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * size;
  if (i >= count) return;
  float sum[size] = {};
  for (std::int64_t row = 0; row < rows; ++row) {
    float more[size];
    load_packs(from + row * count + i, count - i, aligned, more);
    for (int k = 0; k < size; ++k) sum[k] += more[k];
  }
  store_packs(to + i, count - i, aligned, sum);
}

template <class T, class From>
void sum_in_order(std::int64_t rows, std::int64_t count, const From* from, T* to, void* stream) {
  const std::int64_t per_block = std::int64_t{embedding_threads} * elements_in_order<T, From>;
  launch(sum_in_order_kernel<T, From>, "embedding_backward",
         {{blocks_for(count, per_block)}, embedding_threads}, stream, rows, count, from, to,
         rows_are_aligned<From>(count, from, to));
}

template <class T>
void embedding(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* positions,
               T* y, void* stream) {
  const std::int64_t warps = blocks_for(shape.width, static_cast<std::int64_t>(pack_size<T>) * warp_size);
  const int threads = static_cast<int>(std::min<std::int64_t>(warps * warp_size, embedding_threads));
  launch(embedding_kernel<T>, "embedding", {{shape.tokens}, threads}, stream, shape, tokens, table, positions,
         y, rows_are_aligned<T>(shape.width, table, positions, y));
}

inline std::int64_t chunks_of_tokens(const EmbeddingShape& shape) {
  const std::int64_t table = shape.vocabulary * shape.width * static_cast<std::int64_t>(sizeof(float));
  return std::clamp<std::int64_t>(std::min(embedding_scratch / table, shape.tokens / least_tokens_per_chunk),
                                  1, most_token_chunks);
}

template <class T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* dy, T* dtable,
                        void* stream) {
  const std::int64_t per_chunk = blocks_for(shape.tokens, chunks_of_tokens(shape));
  const std::int64_t chunks = blocks_for(shape.tokens, per_chunk);
  const std::int64_t elements = shape.vocabulary * shape.width;
  const std::int64_t tile = static_cast<std::int64_t>(warp_size) * packs_per_lane * pack_size<T>;
  const LaunchShape grid{
      {blocks_for(shape.vocabulary, rows_per_block), blocks_for(shape.width, tile), chunks},
      embedding_threads};
  if (chunks == 1) {
    const bool aligned = rows_are_aligned<T>(shape.width, dy, dtable);
    launch(embedding_backward_kernel<T, T>, "embedding_backward", grid, stream, shape, per_chunk, tokens, dy,
           dtable, aligned);
    return;
  }
  auto* partial = scratch_for<float>(stream, chunks * elements, "embedding_backward");
  launch(embedding_backward_kernel<T, float>, "embedding_backward", grid, stream, shape, per_chunk, tokens,
         dy, partial, rows_are_aligned<T>(shape.width, dy, partial));
  sum_in_order<T, float>(chunks, elements, partial, dtable, stream);
}

template <class T>
void position_backward(const EmbeddingShape& shape, const T* dy, T* dpositions, void* stream) {
  sum_in_order<T, T>(shape.tokens / shape.sequence, shape.sequence * shape.width, dy, dpositions, stream);
}

template void embedding(const EmbeddingShape&, const std::int32_t*, const float*, const float*, float*,
                        void*);
template void embedding(const EmbeddingShape&, const std::int32_t*, const Bfloat16*, const Bfloat16*,
                        Bfloat16*, void*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const float*, float*, void*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const Bfloat16*, Bfloat16*,
                                 void*);
template void position_backward(const EmbeddingShape&, const float*, float*, void*);
template void position_backward(const EmbeddingShape&, const Bfloat16*, Bfloat16*, void*);
template void embedding(const EmbeddingShape&, const std::int32_t*, const Float16*, const Float16*, Float16*,
                        void*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const Float16*, Float16*, void*);
template void position_backward(const EmbeddingShape&, const Float16*, Float16*, void*);

STOWAGE_CUDA_KERNEL(embedding_kernel<float>);
STOWAGE_CUDA_KERNEL(embedding_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(embedding_kernel<Float16>);
STOWAGE_CUDA_KERNEL(embedding_backward_kernel<float, float>);
STOWAGE_CUDA_KERNEL(embedding_backward_kernel<Bfloat16, Bfloat16>);
STOWAGE_CUDA_KERNEL(embedding_backward_kernel<Float16, Float16>);
STOWAGE_CUDA_KERNEL(embedding_backward_kernel<Bfloat16, float>);
STOWAGE_CUDA_KERNEL(embedding_backward_kernel<Float16, float>);
STOWAGE_CUDA_KERNEL(sum_in_order_kernel<float, float>);
STOWAGE_CUDA_KERNEL(sum_in_order_kernel<Bfloat16, float>);
STOWAGE_CUDA_KERNEL(sum_in_order_kernel<Float16, float>);
STOWAGE_CUDA_KERNEL(sum_in_order_kernel<Bfloat16, Bfloat16>);
STOWAGE_CUDA_KERNEL(sum_in_order_kernel<Float16, Float16>);

}  // namespace stowage::cuda
