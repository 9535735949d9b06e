#include "kernels/cuda/column_sum.h"

#include <algorithm>

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/math/gelu.h"

namespace stowage::cuda {

inline constexpr int column_warps = 8;  // warps of a block: each takes every eighth row of the chunk
inline constexpr int total_warps = 16;  // warps of a block that sums chunks: each takes every sixteenth
inline constexpr std::int64_t least_rows_per_chunk = 64;
inline constexpr std::int64_t most_chunks = 128;

// Terms of a sum: `sums` terms for each element. Operands of several rows are loaded before the first row
// is added.
template <class T>
struct PlainTerms {
  static constexpr int sums = 1;
  static constexpr int rows_in_flight = 8;
  struct Loaded {
    SixteenBytes x;
  };
  const T* x;

  template <class Aligned>
  __device__ Loaded load(std::int64_t at, std::int64_t, std::int64_t count, Aligned aligned) const {
    return {load_words(x + at, count, aligned)};
  }
  __device__ void add(const Loaded& of, std::int64_t, std::int64_t, bool,
                      float (&sum)[sums][pack_size<T>]) const {
    const Pack<T> pack = unpack(of.x, x);
    for (int k = 0; k < pack_size<T>; ++k) sum[0][k] += pack.values[k];
  }
};

// Terms of the gradients of a norm's gain and, if centred, of its bias. `mean` is null for RMS norm.
template <class T, class Norm>
struct NormTerms {
  static constexpr int sums = Norm::sums;
  static constexpr int rows_in_flight = 4;
  struct Loaded {
    SixteenBytes x, dy;
    float mean, rstd;
  };
  const T* x;
  const float* mean;
  const float* rstd;
  const T* dy;

  template <class Aligned>
  __device__ Loaded load(std::int64_t at, std::int64_t row, std::int64_t count, Aligned aligned) const {
    return {load_words(x + at, count, aligned), load_words(dy + at, count, aligned),
            Norm::centred ? mean[row] : 0.0F, rstd[row]};
  }
  __device__ void add(const Loaded& of, std::int64_t, std::int64_t, bool,
                      float (&sum)[sums][pack_size<T>]) const {
    const Pack<T> pack = unpack(of.x, x);
    const Pack<T> flow = unpack(of.dy, dy);
    for (int k = 0; k < pack_size<T>; ++k) {
      sum[0][k] += flow.values[k] * ((pack.values[k] - of.mean) * of.rstd);
      if constexpr (Norm::centred) sum[1][k] += flow.values[k];
    }
  }
};

// Terms of the gradient of the bias before GELU: GELU's gradient, which is written too. dx may be dy: a
// thread writes only elements that no other thread reads.
template <class T, class Form>
struct GeluTerms {
  static constexpr int sums = 1;
  static constexpr int rows_in_flight = 4;
  struct Loaded {
    SixteenBytes x, dy;
  };
  const T* x;
  const T* dy;
  T* dx;

  template <class Aligned>
  __device__ Loaded load(std::int64_t at, std::int64_t, std::int64_t count, Aligned aligned) const {
    return {load_words(x + at, count, aligned), load_words(dy + at, count, aligned)};
  }
  template <class Aligned>
  __device__ void add(const Loaded& of, std::int64_t at, std::int64_t count, Aligned aligned,
                      float (&sum)[sums][pack_size<T>]) const {
    const Pack<T> pack = unpack(of.x, x);
    Pack<T> flow = unpack(of.dy, dy);
    for (int k = 0; k < pack_size<T>; ++k) {
      flow.values[k] *= Form::derivative(pack.values[k]);
      sum[0][k] += flow.values[k];
    }
    store_pack(dx + at, count, aligned, flow);
  }
};

// Adds the column pack at `column` of every column_warps-th row from `row` on, in order.
template <class T, bool aligned, class Terms>
__device__ void sum_rows(const ColumnChunks& cut, const Terms& terms, std::int64_t column, std::int64_t row,
                         std::int64_t end, float (&sum)[Terms::sums][pack_size<T>]) {
  constexpr int in_flight = aligned ? Terms::rows_in_flight : 1;
  constexpr std::bool_constant<aligned> is_aligned;
  const std::int64_t left = cut.width - column;
  for (; row < end; row += in_flight * column_warps) {
    typename Terms::Loaded loaded[in_flight];
#pragma unroll
    for (int n = 0; n < in_flight; ++n) {
      const std::int64_t later = row + n * column_warps;
      const std::int64_t at = later < end ? later : row;
      loaded[n] = terms.load(at * cut.width + column, at, left, is_aligned);
    }
#pragma unroll
    for (int n = 0; n < in_flight; ++n) {
      const std::int64_t at = row + n * column_warps;
      if (at < end) terms.add(loaded[n], at * cut.width + column, left, is_aligned, sum);
    }
  }
}

// partial[chunk, sum, column]. A lane of each warp owns one pack of columns; blocks are (columns, chunk).
template <class T, class Terms, bool aligned>
__global__ void column_partial_kernel(ColumnChunks cut, Terms terms, float* partial) {
  constexpr int size = pack_size<T>;
  __shared__ float shared[column_warps][Terms::sums][warp_size * size];
  const int lane = static_cast<int>(threadIdx.x % warp_size);
  const int warp = static_cast<int>(threadIdx.x / warp_size);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * warp_size * size;
  const std::int64_t column = begin + lane * size;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * cut.rows_per_chunk;
  const std::int64_t last = first + cut.rows_per_chunk < cut.rows ? first + cut.rows_per_chunk : cut.rows;

  float sum[Terms::sums][size] = {};
  if (column < cut.width) sum_rows<T, aligned>(cut, terms, column, first + warp, last, sum);
  for (int s = 0; s < Terms::sums; ++s) {
    for (int k = 0; k < size; ++k) shared[warp][s][lane * size + k] = sum[s][k];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < Terms::sums * warp_size * size;
       i += static_cast<int>(blockDim.x)) {
    const int s = i / (warp_size * size);
    const int at = i % (warp_size * size);
    if (begin + at >= cut.width) continue;
    float total = 0;
    for (int w = 0; w < column_warps; ++w) total += shared[w][s][at];
    partial[(static_cast<std::int64_t>(blockIdx.y) * Terms::sums + s) * cut.width + begin + at] = total;
  }
}

// Sum `blockIdx.y` of the chunks. Warp w of a block adds the chunks w, w + 16, …; then the warps in order.
template <class T>
__global__ void column_total_kernel(std::int64_t chunks, std::int64_t width, const float* partial, T* first,
                                    T* second, bool add) {
  __shared__ float shared[total_warps][warp_size];
  const int lane = static_cast<int>(threadIdx.x % warp_size);
  const int warp = static_cast<int>(threadIdx.x / warp_size);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp_size + lane;
  float sum = 0;
  if (column < width) {
#pragma unroll 16
    for (std::int64_t chunk = warp; chunk < chunks; chunk += total_warps) {
      sum += partial[(chunk * gridDim.y + blockIdx.y) * width + column];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= width) return;
  float total = 0;
  for (int w = 0; w < total_warps; ++w) total += shared[w][lane];
  T* to = (blockIdx.y == 0 ? first : second) + column;
  *to = static_cast<T>(add ? static_cast<float>(*to) + total : total);
}

ColumnChunks cut_rows(const Rows& shape, int sums, std::int64_t least_rows, std::int64_t most_chunks) {
  const std::int64_t bytes = shape.width * sums * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t most = std::clamp<std::int64_t>(column_sum_scratch / bytes, 1, most_chunks);
  const std::int64_t rows = std::max(least_rows, blocks_for(shape.rows, most));
  return {shape.rows, shape.width, rows, blocks_for(shape.rows, rows)};
}

template <class To>
void add_chunks(const ColumnChunks& cut, int sums, const float* partial, To* first, To* second, void* stream,
                bool add) {
  launch(column_total_kernel<To>, "column_sum",
         {{blocks_for(cut.width, warp_size), sums}, total_warps * warp_size}, stream, cut.chunks, cut.width,
         partial, first, second, add);
}

template <class T, class Terms, class To>
void sum_columns(const Rows& shape, const Terms& terms, bool aligned, To* first, To* second, void* stream,
                 bool add = false) {
  constexpr int threads = column_warps * warp_size;
  const ColumnChunks cut = cut_rows(shape, Terms::sums, least_rows_per_chunk, most_chunks);
  auto* partial = scratch_for<float>(stream, cut.chunks * Terms::sums * shape.width, "column_sum");
  const std::int64_t tiles = blocks_for(shape.width, static_cast<std::int64_t>(warp_size) * pack_size<T>);
  const auto kernel =
      aligned ? column_partial_kernel<T, Terms, true> : column_partial_kernel<T, Terms, false>;
  launch(kernel, "column_sum", {{tiles, cut.chunks}, threads}, stream, cut, terms, partial);
  add_chunks(cut, Terms::sums, partial, first, second, stream, add);
}

template <class T, class To>
void column_sum(const Rows& shape, const T* x, To* sum, void* stream, bool add) {
  sum_columns<T>(shape, PlainTerms<T>{x}, rows_are_aligned<T>(shape.width, x), sum, sum, stream, add);
}

template <class T>
void layer_norm_backward_parameters(const Rows& shape, const T* x, const float* mean, const float* rstd,
                                    const T* dy, T* dgain, T* dbias, void* stream) {
  sum_columns<T>(shape, NormTerms<T, LayerNorm>{x, mean, rstd, dy}, rows_are_aligned<T>(shape.width, x, dy),
                 dgain, dbias, stream);
}

template <class T>
void rms_norm_backward_parameters(const Rows& shape, const T* x, const float* rstd, const T* dy, T* dgain,
                                  void* stream) {
  sum_columns<T>(shape, NormTerms<T, RmsNorm>{x, nullptr, rstd, dy}, rows_are_aligned<T>(shape.width, x, dy),
                 dgain, dgain, stream);
}

template <class T>
void gelu_backward_bias(GeluForm form, const Rows& shape, const T* x, const T* dy, T* dx, T* dbias,
                        void* stream) {
  const bool aligned = rows_are_aligned<T>(shape.width, x, dy, dx);
  if (form == GeluForm::tanh) {
    sum_columns<T>(shape, GeluTerms<T, GeluTanh>{x, dy, dx}, aligned, dbias, dbias, stream);
  } else {
    sum_columns<T>(shape, GeluTerms<T, GeluErf>{x, dy, dx}, aligned, dbias, dbias, stream);
  }
}

template void add_chunks(const ColumnChunks&, int, const float*, float*, float*, void*, bool);
template void add_chunks(const ColumnChunks&, int, const float*, Bfloat16*, Bfloat16*, void*, bool);
template void column_sum(const Rows&, const float*, float*, void*, bool);
template void column_sum(const Rows&, const Bfloat16*, Bfloat16*, void*, bool);
template void column_sum(const Rows&, const Bfloat16*, float*, void*, bool);
template void layer_norm_backward_parameters(const Rows&, const float*, const float*, const float*,
                                             const float*, float*, float*, void*);
template void layer_norm_backward_parameters(const Rows&, const Bfloat16*, const float*, const float*,
                                             const Bfloat16*, Bfloat16*, Bfloat16*, void*);
template void gelu_backward_bias(GeluForm, const Rows&, const float*, const float*, float*, float*, void*);
template void gelu_backward_bias(GeluForm, const Rows&, const Bfloat16*, const Bfloat16*, Bfloat16*,
                                 Bfloat16*, void*);
template void add_chunks(const ColumnChunks&, int, const float*, Float16*, Float16*, void*, bool);
template void column_sum(const Rows&, const Float16*, Float16*, void*, bool);
template void column_sum(const Rows&, const Float16*, float*, void*, bool);
template void layer_norm_backward_parameters(const Rows&, const Float16*, const float*, const float*,
                                             const Float16*, Float16*, Float16*, void*);
template void gelu_backward_bias(GeluForm, const Rows&, const Float16*, const Float16*, Float16*, Float16*,
                                 void*);
template void rms_norm_backward_parameters(const Rows&, const float*, const float*, const float*, float*,
                                           void*);
template void rms_norm_backward_parameters(const Rows&, const Bfloat16*, const float*, const Bfloat16*,
                                           Bfloat16*, void*);
template void rms_norm_backward_parameters(const Rows&, const Float16*, const float*, const Float16*,
                                           Float16*, void*);

STOWAGE_CUDA_KERNEL(column_partial_kernel<float, PlainTerms<float>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<float, PlainTerms<float>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, PlainTerms<Bfloat16>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, PlainTerms<Bfloat16>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, PlainTerms<Float16>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, PlainTerms<Float16>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<float, NormTerms<float, LayerNorm>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<float, NormTerms<float, RmsNorm>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<float, NormTerms<float, LayerNorm>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<float, NormTerms<float, RmsNorm>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, NormTerms<Bfloat16, LayerNorm>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, NormTerms<Bfloat16, RmsNorm>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, NormTerms<Bfloat16, LayerNorm>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, NormTerms<Bfloat16, RmsNorm>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, NormTerms<Float16, LayerNorm>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, NormTerms<Float16, RmsNorm>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, NormTerms<Float16, LayerNorm>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, NormTerms<Float16, RmsNorm>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<float, GeluTerms<float, GeluTanh>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<float, GeluTerms<float, GeluTanh>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<float, GeluTerms<float, GeluErf>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<float, GeluTerms<float, GeluErf>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, GeluTerms<Bfloat16, GeluTanh>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, GeluTerms<Bfloat16, GeluTanh>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, GeluTerms<Float16, GeluTanh>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, GeluTerms<Float16, GeluTanh>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, GeluTerms<Bfloat16, GeluErf>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Bfloat16, GeluTerms<Bfloat16, GeluErf>, false>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, GeluTerms<Float16, GeluErf>, true>);
STOWAGE_CUDA_KERNEL(column_partial_kernel<Float16, GeluTerms<Float16, GeluErf>, false>);
STOWAGE_CUDA_KERNEL(column_total_kernel<float>);
STOWAGE_CUDA_KERNEL(column_total_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(column_total_kernel<Float16>);

}  // namespace stowage::cuda
