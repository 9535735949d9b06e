#include "kernels/cuda/embedding.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"

namespace stowage::cuda {

inline constexpr int embedding_threads = 256;
inline constexpr int rows_per_block = embedding_threads / warp_size;
inline constexpr int segment = embedding_threads;  // tokens looked through between two barriers
inline constexpr int rows_in_flight = 8;
inline constexpr std::int64_t least_tokens_per_chunk = 1024;
inline constexpr std::int64_t most_token_chunks = 64;

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

// Returns the token's row in the table, -1 if it has none.
__device__ inline std::int32_t row_of(const EmbeddingShape& shape, std::int64_t token) {
  const std::int64_t row = token - shape.first_row;
  return row >= 0 && row < shape.vocabulary ? static_cast<std::int32_t>(row) : -1;
}

template <class T>
__global__ void embedding_rows_kernel(EmbeddingShape shape, const std::int32_t* tokens, const T* table,
                                      const T* before, T* y, bool aligned) {
  const std::int64_t n = blockIdx.x;
  const std::int32_t row = row_of(shape, tokens[n]);
  if (row < 0 && before == y) return;
  const T* from = row >= 0            ? table + row * shape.width
                  : before == nullptr ? nullptr
                                      : before + n * shape.width;
  const bool known = tokens[n] >= 0 && tokens[n] < shape.all_rows;
  const float absent = known ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>; i < shape.width; i += step) {
    const std::int64_t left = shape.width - i;
    Pack<T> pack;
    if (from != nullptr) {
      pack = load_pack(from + i, left, aligned);
    } else {
      for (float& value : pack.values) value = absent;
    }
    store_pack(y + n * shape.width + i, left, aligned, pack);
  }
}

// Tokens in the order of their buckets, and within a bucket in their original order. A bucket is
// `rows_per_bucket` neighbouring rows of the table, a multiple of rows_per_block. All null if not sorted.
struct TokenBuckets {
  std::int64_t rows_per_bucket = 0;
  std::int64_t tokens_per_chunk = 0, chunks = 0;
  std::int32_t* counts = nullptr;  // [chunks, token_buckets]
  std::int32_t* begins = nullptr;  // [token_buckets + 1], into `order`
  std::int32_t* order = nullptr;   // [tokens]; those outside the table are left out
};

inline constexpr int token_buckets = embedding_threads;
inline constexpr int sorted_at_once = 1024;  // tokens sorted between two barriers

// Calls body(n) for the tokens of the calling thread's bucket in chunk blockIdx.x, in order. `shared` holds
// an integer for each of sorted_at_once tokens.
template <class Body>
__device__ void for_tokens_of_bucket(const EmbeddingShape& shape, const TokenBuckets& of,
                                     const std::int32_t* tokens, SixteenBytes* shared, Body body) {
  auto* const buckets = reinterpret_cast<std::uint32_t*>(shared);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * of.tokens_per_chunk;
  const std::int64_t end =
      begin + of.tokens_per_chunk < shape.tokens ? begin + of.tokens_per_chunk : shape.tokens;
  for (std::int64_t first = begin; first < end; first += sorted_at_once) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < sorted_at_once; i += embedding_threads) {
      const std::int32_t row = first + i < end ? row_of(shape, tokens[first + i]) : -1;
      buckets[i] = row >= 0 ? static_cast<std::uint32_t>(row / of.rows_per_bucket) : token_buckets;
    }
    __syncthreads();
    for (int i = 0; i < sorted_at_once / 4; ++i) {
      const SixteenBytes four = shared[i];
      for (int k = 0; k < 4; ++k) {
        if (four.words[k] == threadIdx.x) body(first + 4 * i + k);
      }
    }
  }
}

__global__ void token_counts_kernel(EmbeddingShape shape, TokenBuckets of, const std::int32_t* tokens) {
  __shared__ SixteenBytes shared[sorted_at_once / 4];
  std::int32_t count = 0;
  for_tokens_of_bucket(shape, of, tokens, shared, [&](std::int64_t) { ++count; });
  of.counts[static_cast<std::int64_t>(blockIdx.x) * token_buckets + threadIdx.x] = count;
}

// Returns the sum of the values of the threads before this one. `sums` holds one integer for each thread.
__device__ inline std::int32_t sum_in_front(std::int32_t value, std::int32_t* sums) {
  const int i = static_cast<int>(threadIdx.x);
  std::int32_t sum = value;  // sum of the `apart` values that end with this thread's
  for (int apart = 1; apart < token_buckets; apart *= 2) {
    sums[i] = sum;
    __syncthreads();
    if (i >= apart) sum += sums[i - apart];
    __syncthreads();
  }
  return sum - value;
}

// A thread writes the tokens that its bucket has in its block's chunk, behind the bucket's tokens of earlier
// chunks.
__global__ void token_order_kernel(EmbeddingShape shape, TokenBuckets of, const std::int32_t* tokens) {
  __shared__ SixteenBytes shared[sorted_at_once / 4];
  __shared__ std::int32_t sums[token_buckets];
  std::int32_t before = 0;
  std::int32_t all = 0;
#pragma unroll 8
  for (std::int64_t chunk = 0; chunk < of.chunks; ++chunk) {
    const std::int32_t count = of.counts[chunk * token_buckets + threadIdx.x];
    all += count;
    if (chunk < blockIdx.x) before += count;
  }
  const std::int32_t begin = sum_in_front(all, sums);
  if (blockIdx.x == 0) {
    of.begins[threadIdx.x] = begin;
    if (threadIdx.x == token_buckets - 1) of.begins[token_buckets] = begin + all;
  }
  std::int32_t* to = of.order + begin + before;
  for_tokens_of_bucket(shape, of, tokens, shared,
                       [&](std::int64_t n) { *to++ = static_cast<std::int32_t>(n); });
}

// Loads one pack of each of at most `count` rows.
template <class T>
__device__ void load_found(const std::int32_t* rows, int count, const T* dy, std::int64_t width,
                           std::int64_t left, bool aligned, SixteenBytes (&words)[rows_in_flight]) {
#pragma unroll
  for (int r = 0; r < rows_in_flight; ++r) {
    if (r < count) words[r] = load_words(dy + rows[r] * width, left, aligned);
  }
}

// Blocks are (8 table rows, columns, chunk of tokens); `to` is [chunks, V, C]. A warp sums one pack a lane of
// its row. It looks through the tokens in their order; if sorted, only through the row's bucket.
template <class T, class To>
__global__ void embedding_backward_kernel(EmbeddingShape shape, std::int64_t tokens_per_chunk,
                                          TokenBuckets sorted, const std::int32_t* tokens, const T* dy,
                                          To* to, bool aligned) {
  __shared__ std::int32_t places[segment];
  __shared__ std::int32_t values[segment];
  __shared__ std::int32_t found[rows_per_block][segment];
  const int lane = static_cast<int>(threadIdx.x % warp_size);
  const int warp = static_cast<int>(threadIdx.x / warp_size);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows_per_block + warp;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * warp_size + lane) * pack_size<T>;
  const std::int64_t left = shape.width - column;
  std::int64_t begin = static_cast<std::int64_t>(blockIdx.z) * tokens_per_chunk;
  std::int64_t end = begin + tokens_per_chunk < shape.tokens ? begin + tokens_per_chunk : shape.tokens;
  if (sorted.order != nullptr) {
    const std::int64_t bucket = blockIdx.x * rows_per_block / sorted.rows_per_bucket;
    begin = sorted.begins[bucket];
    end = sorted.begins[bucket + 1];
  }

  float sum[pack_size<T>] = {};
  for (std::int64_t first = begin; first < end; first += segment) {
    const std::int64_t i = first + threadIdx.x;
    const std::int64_t place = i < end && sorted.order != nullptr ? sorted.order[i] : i;
    __syncthreads();
    places[threadIdx.x] = static_cast<std::int32_t>(place);
    values[threadIdx.x] = i < end ? row_of(shape, tokens[place]) : -1;
    __syncthreads();
    int count = 0;
    for (int k = 0; k < segment; k += warp_size) {
      const bool mine = values[k + lane] == row;
      const unsigned all = ballot(mine);
      if (mine)
        found[warp][count + std::popcount(all & ((1U << static_cast<unsigned>(lane)) - 1))] =
            places[k + lane];
      count += std::popcount(all);
    }
    __syncwarp();
    if (left <= 0) continue;
    for (int i0 = 0; i0 < count; i0 += rows_in_flight) {
      SixteenBytes words[rows_in_flight];
      if (aligned && left >= pack_size<T>) {
        load_found(found[warp] + i0, count - i0, dy + column, shape.width, pack_size<T>, true, words);
      } else {
        load_found(found[warp] + i0, count - i0, dy + column, shape.width, left, false, words);
      }
#pragma unroll
      for (int r = 0; r < rows_in_flight; ++r) {
        if (i0 + r >= count) break;
        const Pack<T> pack = unpack(words[r], dy);
        for (int k = 0; k < pack_size<T>; ++k) sum[k] += pack.values[k];
      }
    }
  }
  if (row >= shape.vocabulary || left <= 0) return;
  store_packs(to + (static_cast<std::int64_t>(blockIdx.z) * shape.vocabulary + row) * shape.width + column,
              left, aligned, sum);
}

// Elements of one thread: whole packs of both types.
template <class T, class From>
inline constexpr int elements_in_order = pack_size<T> < pack_size<From> ? pack_size<From> : pack_size<T>;

// to[i] = sum over `rows` of from[row * count + i], in order. Serves position_backward and the token chunks.
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

// Returns a launch of one block for each token.
template <class T>
LaunchShape blocks_of_tokens(const EmbeddingShape& shape) {
  const std::int64_t warps = blocks_for(shape.width, static_cast<std::int64_t>(pack_size<T>) * warp_size);
  return {{shape.tokens}, static_cast<int>(std::min<std::int64_t>(warps * warp_size, embedding_threads))};
}

template <class T>
void embedding(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* positions,
               T* y, void* stream) {
  launch(embedding_kernel<T>, "embedding", blocks_of_tokens<T>(shape), stream, shape, tokens, table,
         positions, y, rows_are_aligned<T>(shape.width, table, positions, y));
}

template <class T>
void embedding_rows(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* before,
                    T* y, void* stream) {
  launch(embedding_rows_kernel<T>, "embedding", blocks_of_tokens<T>(shape), stream, shape, tokens, table,
         before, y, rows_are_aligned<T>(shape.width, table, before, y));
}

inline std::int64_t chunks_of_tokens(const EmbeddingShape& shape) {
  const std::int64_t table = shape.vocabulary * shape.width * static_cast<std::int64_t>(sizeof(float));
  return std::clamp<std::int64_t>(std::min(embedding_scratch / table, shape.tokens / least_tokens_per_chunk),
                                  1, most_token_chunks);
}

// Whether sorting pays: without it each row of the table looks through all tokens, and time grows with the
// product of both.
inline bool worth_sorting(const EmbeddingShape& shape) {
  return shape.tokens >= 4 * least_tokens_per_chunk && shape.vocabulary >= token_buckets * rows_per_block;
}

// Sorts the tokens, unless the scratch does not hold the order.
inline TokenBuckets sort_tokens(const EmbeddingShape& shape, const std::int32_t* tokens, void* stream) {
  TokenBuckets of;
  of.rows_per_bucket = blocks_for(shape.vocabulary, token_buckets * rows_per_block) * rows_per_block;
  of.chunks = std::min(shape.tokens / least_tokens_per_chunk, most_token_chunks);
  of.tokens_per_chunk = blocks_for(shape.tokens, of.chunks);
  const std::int64_t integers = (of.chunks + 1) * token_buckets + 1 + shape.tokens;
  if (integers * static_cast<std::int64_t>(sizeof(std::int32_t)) > embedding_scratch) return {};
  of.counts = scratch_for<std::int32_t>(stream, integers, "embedding_backward");
  of.begins = of.counts + of.chunks * token_buckets;
  of.order = of.begins + token_buckets + 1;
  const LaunchShape grid{{of.chunks}, embedding_threads};
  launch(token_counts_kernel, "embedding_backward", grid, stream, shape, of, tokens);
  launch(token_order_kernel, "embedding_backward", grid, stream, shape, of, tokens);
  return of;
}

template <class T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* dy, T* dtable,
                        void* stream) {
  const std::int64_t per_chunk = blocks_for(shape.tokens, chunks_of_tokens(shape));
  const std::int64_t chunks = blocks_for(shape.tokens, per_chunk);
  const std::int64_t elements = shape.vocabulary * shape.width;
  const std::int64_t tile = static_cast<std::int64_t>(warp_size) * pack_size<T>;
  const LaunchShape grid{
      {blocks_for(shape.vocabulary, rows_per_block), blocks_for(shape.width, tile), chunks},
      embedding_threads};
  if (chunks == 1) {
    const TokenBuckets sorted = worth_sorting(shape) ? sort_tokens(shape, tokens, stream) : TokenBuckets{};
    launch(embedding_backward_kernel<T, T>, "embedding_backward", grid, stream, shape, per_chunk, sorted,
           tokens, dy, dtable, rows_are_aligned<T>(shape.width, dy, dtable));
    return;
  }
  auto* partial = scratch_for<float>(stream, chunks * elements, "embedding_backward");
  launch(embedding_backward_kernel<T, float>, "embedding_backward", grid, stream, shape, per_chunk,
         TokenBuckets{}, tokens, dy, partial, rows_are_aligned<T>(shape.width, dy, partial));
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
template void embedding_rows(const EmbeddingShape&, const std::int32_t*, const float*, const float*, float*,
                             void*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const float*, float*, void*);
template void embedding_rows(const EmbeddingShape&, const std::int32_t*, const Bfloat16*, const Bfloat16*,
                             Bfloat16*, void*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const Bfloat16*, Bfloat16*,
                                 void*);
template void position_backward(const EmbeddingShape&, const float*, float*, void*);
template void position_backward(const EmbeddingShape&, const Bfloat16*, Bfloat16*, void*);
template void embedding(const EmbeddingShape&, const std::int32_t*, const Float16*, const Float16*, Float16*,
                        void*);
template void embedding_rows(const EmbeddingShape&, const std::int32_t*, const Float16*, const Float16*,
                             Float16*, void*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const Float16*, Float16*, void*);
template void position_backward(const EmbeddingShape&, const Float16*, Float16*, void*);

STOWAGE_CUDA_KERNEL(embedding_kernel<float>);
STOWAGE_CUDA_KERNEL(embedding_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(embedding_kernel<Float16>);
STOWAGE_CUDA_KERNEL(embedding_rows_kernel<float>);
STOWAGE_CUDA_KERNEL(embedding_rows_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(embedding_rows_kernel<Float16>);
STOWAGE_CUDA_KERNEL(token_counts_kernel);
STOWAGE_CUDA_KERNEL(token_order_kernel);
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
