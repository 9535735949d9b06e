#include <algorithm>

#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/held_row.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"

namespace stowage::cuda {

// Most threads of a block; each keeps the sums of one pack of columns.
inline constexpr int most_chunk_threads = 512;
inline constexpr std::int64_t least_rows_of_norm_chunk = 16;
// Blocks that an H100 runs at once: each of its 132 processors has registers for about 576 threads. A few
// blocks more would run alone behind all others.
inline std::int64_t most_norm_chunks(std::int64_t threads) {
  return 132 * std::max<std::int64_t>(576 / threads, 1);
}
template <bool aligned>
inline constexpr int rows_at_once = 1;
template <>
inline constexpr int rows_at_once<true> = 4;

// A thread's pack of one row, as it lies in memory. dy is read as 0 behind the end of a row, and
// adds nothing.
template <class T>
struct RowWords {
  SixteenBytes x, dy, before;
  float mean, rstd;

  template <class Aligned>
  __device__ void load(const LayerNormGradient<T>& of, std::int64_t row, std::int64_t at, std::int64_t left,
                       Aligned aligned) {
    x = load_words(of.x + at, left, aligned);
    dy = load_words(of.dy + at, left, aligned);
    before = of.before != nullptr ? load_words(of.before + at, left, aligned) : SixteenBytes{};
    mean = of.mean[row];
    rstd = of.rstd[row];
  }
};

// A pack of x, normalised, and of dy, from which dx is computed.
template <class T>
struct RowPack {
  Pack<T> normal, flow;

  __device__ explicit RowPack(const RowWords<T>& words) {
    const T* const type = nullptr;
    normal = unpack(words.x, type);
    flow = unpack(words.dy, type);
    for (float& value : normal.values) value = (value - words.mean) * words.rstd;
  }

  // Adds to the row's sums of g and of g n.
  __device__ void add_to(float* sums, const Pack<T>& gain) const {
    for (int k = 0; k < pack_size<T>; ++k) {
      const float g = flow.values[k] * gain.values[k];
      sums[0] += g;
      sums[1] += g * normal.values[k];
    }
  }

  // Writes dx. `averages`: the two sums of add_to over the whole row, as averages.
  template <class Aligned>
  __device__ void write(const LayerNormGradient<T>& of, const RowWords<T>& words, const Pack<T>& gain,
                        const float* averages, std::int64_t at, std::int64_t left, Aligned aligned) const {
    Pack<T> result;
    for (int k = 0; k < pack_size<T>; ++k) {
      result.values[k] =
          words.rstd * (flow.values[k] * gain.values[k] - averages[0] - normal.values[k] * averages[1]);
    }
    if (of.before != nullptr) {
      const Pack<T> before = unpack(words.before, of.before);
      for (int k = 0; k < pack_size<T>; ++k) result.values[k] += before.values[k];
    }
    store_pack(of.dx + at, left, aligned, result);
  }
};

// A block has one row. A thread writes only elements that no other thread reads.
template <class T>
__global__ void layer_norm_backward_kernel(std::int64_t width, LayerNormGradient<T> of, bool aligned) {
  __shared__ float shared[2 * most_row_threads / warp_size];
  const std::int64_t row = blockIdx.x;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;

  float sums[2] = {};
  for (std::int64_t i = first; i < width; i += step) {
    RowWords<T> words;
    words.load(of, row, row * width + i, width - i, aligned);
    RowPack<T>(words).add_to(sums, load_pack(of.gain + i, width - i, aligned));
  }
  reduce_block<Sum>(sums, shared);
  for (float& sum : sums) sum /= static_cast<float>(width);
  for (std::int64_t i = first; i < width; i += step) {
    RowWords<T> words;
    words.load(of, row, row * width + i, width - i, aligned);
    RowPack<T>(words).write(of, words, load_pack(of.gain + i, width - i, aligned), sums, row * width + i,
                            width - i, aligned);
  }
}

// A block has a chunk of rows: a thread owns one pack of columns, and writes their sums over the chunk to
// partial[chunk, 2, width]. Rows are loaded and summed `step` at a time, so that their loads are under way
// together, and share two barriers.
template <class T, bool aligned>
__global__ void __launch_bounds__(most_chunk_threads)
    layer_norm_backward_chunk_kernel(ColumnChunks cut, LayerNormGradient<T> of, float* partial) {
  constexpr int step = rows_at_once<aligned>;
  constexpr std::bool_constant<aligned> is_aligned;
  __shared__ float shared[2 * step * most_chunk_threads / warp_size];
  const std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>;
  const std::int64_t left = cut.width - column;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cut.rows_per_chunk;
  const std::int64_t last = first + cut.rows_per_chunk < cut.rows ? first + cut.rows_per_chunk : cut.rows;
  const SixteenBytes gain_words = load_words(of.gain + column, left, is_aligned);

  const float share = 1.0F / static_cast<float>(cut.width);
  float dgain[pack_size<T>] = {};
  float dbias[pack_size<T>] = {};
  for (std::int64_t row = first; row < last; row += step) {
    RowWords<T> words[step];
    float sums[2 * step] = {};
#pragma unroll
    for (int r = 0; r < step; ++r) {
      const std::int64_t one = row + r < last ? row + r : last - 1;
      words[r].load(of, one, one * cut.width + column, left, is_aligned);
    }
    const Pack<T> gain = unpack(gain_words, of.gain);
#pragma unroll
    for (int r = 0; r < step; ++r) {
      if (row + r < last) RowPack<T>(words[r]).add_to(sums + 2 * r, gain);
    }
    reduce_block<Sum>(sums, shared);
    for (float& sum : sums) sum *= share;
#pragma unroll
    for (int r = 0; r < step; ++r) {
      if (row + r >= last) break;
      const RowPack<T> pack(words[r]);
      pack.write(of, words[r], gain, sums + 2 * r, (row + r) * cut.width + column, left, is_aligned);
      for (int k = 0; k < pack_size<T>; ++k) {
        dgain[k] += pack.flow.values[k] * pack.normal.values[k];
        dbias[k] += pack.flow.values[k];
      }
    }
  }
  float* to = partial + static_cast<std::int64_t>(blockIdx.x) * 2 * cut.width + column;
  store_packs(to, left, aligned, dgain);
  store_packs(to + cut.width, left, aligned, dbias);
}

template <class T>
void layer_norm_backward(const Rows& shape, const LayerNormGradient<T>& of, void* stream) {
  const bool aligned = rows_are_aligned<T>(shape.width, of.x, of.gain, of.dy, of.before, of.dx);
  const std::int64_t threads = threads_of_row<T>(shape.width);
  if (of.dgain != nullptr && threads <= most_chunk_threads) {
    const ColumnChunks cut = cut_rows(shape, 2, least_rows_of_norm_chunk, most_norm_chunks(threads));
    auto* partial = scratch_for<float>(stream, cut.chunks * 2 * shape.width, "layer_norm_backward");
    const auto kernel =
        aligned ? layer_norm_backward_chunk_kernel<T, true> : layer_norm_backward_chunk_kernel<T, false>;
    launch(kernel, "layer_norm_backward", {{cut.chunks}, static_cast<int>(threads)}, stream, cut, of,
           partial);
    return add_chunks(cut, 2, partial, of.dgain, of.dbias, stream);
  }
  if (of.dgain != nullptr)
    layer_norm_backward_parameters(shape, of.x, of.mean, of.rstd, of.dy, of.dgain, of.dbias, stream);
  launch(layer_norm_backward_kernel<T>, "layer_norm_backward", row_shape<T>(shape), stream, shape.width, of,
         aligned);
}

template void layer_norm_backward(const Rows&, const LayerNormGradient<float>&, void*);
template void layer_norm_backward(const Rows&, const LayerNormGradient<Bfloat16>&, void*);
template void layer_norm_backward(const Rows&, const LayerNormGradient<Float16>&, void*);

STOWAGE_CUDA_KERNEL(layer_norm_backward_kernel<float>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_kernel<Float16>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_chunk_kernel<float, true>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_chunk_kernel<float, false>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_chunk_kernel<Bfloat16, true>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_chunk_kernel<Bfloat16, false>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_chunk_kernel<Float16, true>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_chunk_kernel<Float16, false>);

}  // namespace stowage::cuda
