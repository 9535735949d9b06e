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
template <class T, class Norm>
struct RowWords {
  SixteenBytes x, dy, before;
  float mean = 0, rstd;

  template <class Aligned>
  __device__ void load(const NormGradient<T>& of, std::int64_t row, std::int64_t at, std::int64_t left,
                       Aligned aligned) {
    x = load_words(of.x + at, left, aligned);
    dy = load_words(of.dy + at, left, aligned);
    before = of.before != nullptr ? load_words(of.before + at, left, aligned) : SixteenBytes{};
    if constexpr (Norm::centred) mean = of.mean[row];
    rstd = of.rstd[row];
  }
};

// A pack of x, normalised, and of dy, from which dx is computed.
template <class T, class Norm>
struct RowPack {
  Pack<T> normal, flow;

  __device__ explicit RowPack(const RowWords<T, Norm>& words) {
    const T* const type = nullptr;
    normal = unpack(words.x, type);
    flow = unpack(words.dy, type);
    for (float& value : normal.values) value = (value - words.mean) * words.rstd;
  }

  // Adds to the row's sums of g n and, if centred, of g.
  __device__ void add_to(float* sums, const Pack<T>& gain) const {
    for (int k = 0; k < pack_size<T>; ++k) {
      const float g = flow.values[k] * gain.values[k];
      sums[0] += g * normal.values[k];
      if constexpr (Norm::centred) sums[1] += g;
    }
  }

  // Writes dx. `averages`: the sums of add_to over the whole row, as averages.
  template <class Aligned>
  __device__ void write(const NormGradient<T>& of, const RowWords<T, Norm>& words, const Pack<T>& gain,
                        const float* averages, std::int64_t at, std::int64_t left, Aligned aligned) const {
    float average = 0;
    if constexpr (Norm::centred) average = averages[1];
    Pack<T> result;
    for (int k = 0; k < pack_size<T>; ++k) {
      result.values[k] =
          words.rstd * (flow.values[k] * gain.values[k] - average - normal.values[k] * averages[0]);
    }
    if (of.before != nullptr) {
      const Pack<T> before = unpack(words.before, of.before);
      for (int k = 0; k < pack_size<T>; ++k) result.values[k] += before.values[k];
    }
    store_pack(of.dx + at, left, aligned, result);
  }
};

// A block has one row. A thread writes only elements that no other thread reads.
template <class T, class Norm>
__global__ void norm_backward_kernel(std::int64_t width, NormGradient<T> of, bool aligned) {
  __shared__ float shared[Norm::sums * most_row_threads / warp_size];
  const std::int64_t row = blockIdx.x;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;

  float sums[Norm::sums] = {};
  for (std::int64_t i = first; i < width; i += step) {
    RowWords<T, Norm> words;
    words.load(of, row, row * width + i, width - i, aligned);
    RowPack<T, Norm>(words).add_to(sums, load_pack(of.gain + i, width - i, aligned));
  }
  reduce_block<Sum>(sums, shared);
  for (float& sum : sums) sum /= static_cast<float>(width);
  for (std::int64_t i = first; i < width; i += step) {
    RowWords<T, Norm> words;
    words.load(of, row, row * width + i, width - i, aligned);
    RowPack<T, Norm>(words).write(of, words, load_pack(of.gain + i, width - i, aligned), sums,
                                  row * width + i, width - i, aligned);
  }
}

// A block has a chunk of rows: a thread owns one pack of columns, and writes their sums over the chunk to
// partial[chunk, sum, width]. Rows are loaded and summed `step` at a time, so that their loads are under way
// together, and share two barriers.
template <class T, bool aligned, class Norm>
__global__ void __launch_bounds__(most_chunk_threads)
    norm_backward_chunk_kernel(ColumnChunks cut, NormGradient<T> of, float* partial) {
  constexpr int step = rows_at_once<aligned>;
  constexpr std::bool_constant<aligned> is_aligned;
  __shared__ float shared[Norm::sums * step * most_chunk_threads / warp_size];
  const std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>;
  const std::int64_t left = cut.width - column;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cut.rows_per_chunk;
  const std::int64_t last = first + cut.rows_per_chunk < cut.rows ? first + cut.rows_per_chunk : cut.rows;
  const SixteenBytes gain_words = load_words(of.gain + column, left, is_aligned);

  const float share = 1.0F / static_cast<float>(cut.width);
  float dgain[pack_size<T>] = {};
  float dbias[pack_size<T>] = {};
  for (std::int64_t row = first; row < last; row += step) {
    RowWords<T, Norm> words[step];
    float sums[Norm::sums * step] = {};
#pragma unroll
    for (int r = 0; r < step; ++r) {
      const std::int64_t one = row + r < last ? row + r : last - 1;
      words[r].load(of, one, one * cut.width + column, left, is_aligned);
    }
    const Pack<T> gain = unpack(gain_words, of.gain);
#pragma unroll
    for (int r = 0; r < step; ++r) {
      if (row + r < last) RowPack<T, Norm>(words[r]).add_to(sums + Norm::sums * r, gain);
    }
    reduce_block<Sum>(sums, shared);
    for (float& sum : sums) sum *= share;
#pragma unroll
    for (int r = 0; r < step; ++r) {
      if (row + r >= last) break;
      const RowPack<T, Norm> pack(words[r]);
      pack.write(of, words[r], gain, sums + Norm::sums * r, (row + r) * cut.width + column, left, is_aligned);
      for (int k = 0; k < pack_size<T>; ++k) {
        dgain[k] += pack.flow.values[k] * pack.normal.values[k];
        if constexpr (Norm::centred) dbias[k] += pack.flow.values[k];
      }
    }
  }
  float* to = partial + static_cast<std::int64_t>(blockIdx.x) * Norm::sums * cut.width + column;
  store_packs(to, left, aligned, dgain);
  if constexpr (Norm::centred) store_packs(to + cut.width, left, aligned, dbias);
}

template <class Norm, class T>
void sum_parameters(const Rows& shape, const NormGradient<T>& of, void* stream) {
  if constexpr (Norm::centred)
    layer_norm_backward_parameters(shape, of.x, of.mean, of.rstd, of.dy, of.dgain, of.dbias, stream);
  else
    rms_norm_backward_parameters(shape, of.x, of.rstd, of.dy, of.dgain, stream);
}

template <class Norm, class T>
void norm_backward(const Rows& shape, const NormGradient<T>& of, void* stream) {
  const bool aligned = rows_are_aligned<T>(shape.width, of.x, of.gain, of.dy, of.before, of.dx);
  const std::int64_t threads = threads_of_row<T>(shape.width);
  if (of.dgain != nullptr && threads <= most_chunk_threads) {
    const ColumnChunks cut = cut_rows(shape, Norm::sums, least_rows_of_norm_chunk, most_norm_chunks(threads));
    auto* partial = scratch_for<float>(stream, cut.chunks * Norm::sums * shape.width, Norm::backward_name);
    const auto kernel =
        aligned ? norm_backward_chunk_kernel<T, true, Norm> : norm_backward_chunk_kernel<T, false, Norm>;
    launch(kernel, Norm::backward_name, {{cut.chunks}, static_cast<int>(threads)}, stream, cut, of, partial);
    return add_chunks(cut, Norm::sums, partial, of.dgain, of.dbias, stream);
  }
  if (of.dgain != nullptr) sum_parameters<Norm>(shape, of, stream);
  launch(norm_backward_kernel<T, Norm>, Norm::backward_name, row_shape<T>(shape), stream, shape.width, of,
         aligned);
}

template <class T>
void layer_norm_backward(const Rows& shape, const NormGradient<T>& of, void* stream) {
  norm_backward<LayerNorm>(shape, of, stream);
}

template <class T>
void rms_norm_backward(const Rows& shape, const NormGradient<T>& of, void* stream) {
  norm_backward<RmsNorm>(shape, of, stream);
}

template void layer_norm_backward(const Rows&, const NormGradient<float>&, void*);
template void layer_norm_backward(const Rows&, const NormGradient<Bfloat16>&, void*);
template void layer_norm_backward(const Rows&, const NormGradient<Float16>&, void*);
template void rms_norm_backward(const Rows&, const NormGradient<float>&, void*);
template void rms_norm_backward(const Rows&, const NormGradient<Bfloat16>&, void*);
template void rms_norm_backward(const Rows&, const NormGradient<Float16>&, void*);

STOWAGE_CUDA_KERNEL(norm_backward_kernel<float, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_kernel<Bfloat16, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_kernel<Float16, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<float, true, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<float, false, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<Bfloat16, true, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<Bfloat16, false, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<Float16, true, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<Float16, false, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_kernel<float, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_kernel<Bfloat16, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_kernel<Float16, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<float, true, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<float, false, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<Bfloat16, true, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<Bfloat16, false, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<Float16, true, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_backward_chunk_kernel<Float16, false, RmsNorm>);

}  // namespace stowage::cuda
