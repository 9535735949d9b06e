#include "kernels/cuda/layer_norm.h"

#include <cmath>

#include "kernels/cuda/held_row.h"
#include "kernels/cuda/kernel_registry.h"

namespace stowage::cuda {

// Returns the average of a row. The quotient has no branches of a division; it is exact for rows of one
// value.
template <class T, int packs, class Group>
__device__ float average_of(const HeldRow<T, packs>& held, int width, float share, float* shared) {
  float sum = 0;
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    for (const float value : held.pack(p).values) sum += value;
  }
  sum = Group::sum(sum, shared);
  const float estimate = sum * share;
  return std::fma(std::fma(-estimate, static_cast<float>(width), sum), share, estimate);
}

// Returns the normalised pack at `gain` and `bias`; RMS norm has no bias.
template <class Norm, class T>
__device__ Pack<T> normalised(Pack<T> pack, float average, float inverse, const T* gain, const T* bias,
                              std::int64_t left, bool aligned) {
  const Pack<T> gains = load_pack(gain, left, aligned);
  Pack<T> biases{};
  if constexpr (Norm::centred) biases = load_pack(bias, left, aligned);
  for (int k = 0; k < pack_size<T>; ++k) {
    const float scaled = (pack.values[k] - average) * inverse * gains.values[k];
    pack.values[k] = Norm::centred ? scaled + biases.values[k] : scaled;
  }
  return pack;
}

// The row is read once. Group: the threads that share it, held_row.h.
template <class T, int packs, class Group, class Norm>
__global__ void __launch_bounds__(Group::most_threads)
    norm_held_kernel(Rows shape, float epsilon, const T* x, const T* gain, const T* bias, T* y, float* mean,
                     float* rstd, bool aligned) {
  __shared__ float shared[Group::most_threads / warp_size];
  const std::int64_t row = Group::row();
  if (row >= shape.rows) return;  // whole groups return together
  const int width = static_cast<int>(shape.width);
  const int first = Group::index() * pack_size<T>;
  const int step = Group::threads() * pack_size<T>;
  const HeldRow<T, packs> held(x + row * width, first, step, width, aligned);

  const float share = 1.0F / static_cast<float>(width);
  float average = 0;
  if constexpr (Norm::centred) average = average_of<T, packs, Group>(held, width, share, shared);
  float squares = 0;
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    Pack<T> pack = held.pack(p);
    for (float& value : pack.values) value -= average;
    if constexpr (Norm::centred) fill_behind(width - first - p * step, 0, pack);
    for (const float difference : pack.values) squares += difference * difference;
  }
  const float variance = Group::sum(squares, shared) * share;
  const float inverse = 1.0F / std::sqrt(variance + epsilon);

#pragma unroll
  for (int p = 0; p < packs; ++p) {
    const int at = first + p * step;
    if (at >= width) break;
    const T* const biases = Norm::centred ? bias + at : nullptr;
    store_pack(y + row * width + at, width - at, aligned,
               normalised<Norm>(held.pack(p), average, inverse, gain + at, biases, width - at, aligned));
  }
  if (Group::index() != 0) return;
  if constexpr (Norm::centred) mean[row] = average;
  rstd[row] = inverse;
}

// Serves rows too wide to be held: one block a row, which is read three times, or twice if not centred.
template <class T, class Norm>
__global__ void norm_kernel(std::int64_t width, float epsilon, const T* x, const T* gain, const T* bias, T* y,
                            float* mean, float* rstd, bool aligned) {
  __shared__ float shared[most_row_threads / warp_size];
  const std::int64_t row = blockIdx.x;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;
  x += row * width;
  y += row * width;

  float average = 0;
  if constexpr (Norm::centred) {
    float sum = 0;
    for (std::int64_t i = first; i < width; i += step) {
      for (const float value : load_pack(x + i, width - i, aligned).values) sum += value;
    }
    average = reduce_block<Sum>(sum, shared) / static_cast<float>(width);
  }
  float squares = 0;
  for (std::int64_t i = first; i < width; i += step) {
    const Pack<T> pack = load_pack(x + i, width - i, aligned);
    for (int k = 0; k < pack_size<T>; ++k) {
      const float difference = i + k < width ? pack.values[k] - average : 0.0F;
      squares += difference * difference;
    }
  }
  const float variance = reduce_block<Sum>(squares, shared) / static_cast<float>(width);
  const float inverse = 1.0F / std::sqrt(variance + epsilon);

  for (std::int64_t i = first; i < width; i += step) {
    const T* const biases = Norm::centred ? bias + i : nullptr;
    store_pack(y + i, width - i, aligned,
               normalised<Norm>(load_pack(x + i, width - i, aligned), average, inverse, gain + i, biases,
                                width - i, aligned));
  }
  if (threadIdx.x != 0) return;
  if constexpr (Norm::centred) mean[row] = average;
  rstd[row] = inverse;
}

inline constexpr int most_packs_of_lane = 8;  // packs of a lane, if a warp has the row
inline constexpr int packs_of_block_row = 4;  // packs of a thread, if a block has the row

// Serves rows of at most most_held_threads * packs_of_block_row packs.
template <class T, class Norm>
auto held_kernel(std::int64_t packs_per_lane) {
  if (packs_per_lane <= 1) return norm_held_kernel<T, 1, WarpOfRow, Norm>;
  if (packs_per_lane <= 2) return norm_held_kernel<T, 2, WarpOfRow, Norm>;
  if (packs_per_lane <= 3) return norm_held_kernel<T, 3, WarpOfRow, Norm>;
  if (packs_per_lane <= 4) return norm_held_kernel<T, 4, WarpOfRow, Norm>;
  if (packs_per_lane <= 6) return norm_held_kernel<T, 6, WarpOfRow, Norm>;
  if (packs_per_lane <= most_packs_of_lane) return norm_held_kernel<T, most_packs_of_lane, WarpOfRow, Norm>;
  return norm_held_kernel<T, packs_of_block_row, BlockOfRow, Norm>;
}

inline LaunchShape held_shape(const Rows& shape, std::int64_t packs_per_lane) {
  if (packs_per_lane <= most_packs_of_lane)
    return {{blocks_for(shape.rows, warps_of_rows)}, warps_of_rows * warp_size};
  return {{shape.rows}, static_cast<int>(blocks_for(packs_per_lane, packs_of_block_row)) * warp_size};
}

template <class Norm, class T>
void normalise(const Rows& shape, double epsilon, const T* x, const T* gain, const T* bias, T* y, float* mean,
               float* rstd, bool aligned, void* stream) {
  const std::int64_t packs_per_lane =
      blocks_for(shape.width, static_cast<std::int64_t>(pack_size<T>) * warp_size);
  if (packs_per_lane <= packs_of_block_row * most_held_threads / warp_size) {
    return launch(held_kernel<T, Norm>(packs_per_lane), Norm::name, held_shape(shape, packs_per_lane), stream,
                  shape, epsilon, x, gain, bias, y, mean, rstd, aligned);
  }
  launch(norm_kernel<T, Norm>, Norm::name, row_shape<T>(shape), stream, shape.width, epsilon, x, gain, bias,
         y, mean, rstd, aligned);
}

template <class T>
void layer_norm(const Rows& shape, double epsilon, const T* x, const T* gain, const T* bias, T* y,
                float* mean, float* rstd, void* stream) {
  const bool aligned = rows_are_aligned<T>(shape.width, x, gain, bias, y);
  normalise<LayerNorm>(shape, epsilon, x, gain, bias, y, mean, rstd, aligned, stream);
}

template <class T>
void rms_norm(const Rows& shape, double epsilon, const T* x, const T* gain, T* y, float* rstd, void* stream) {
  const bool aligned = rows_are_aligned<T>(shape.width, x, gain, y);
  normalise<RmsNorm, T>(shape, epsilon, x, gain, nullptr, y, nullptr, rstd, aligned, stream);
}

template void layer_norm(const Rows&, double, const float*, const float*, const float*, float*, float*,
                         float*, void*);
template void layer_norm(const Rows&, double, const Bfloat16*, const Bfloat16*, const Bfloat16*, Bfloat16*,
                         float*, float*, void*);
template void layer_norm(const Rows&, double, const Float16*, const Float16*, const Float16*, Float16*,
                         float*, float*, void*);
template void rms_norm(const Rows&, double, const float*, const float*, float*, float*, void*);
template void rms_norm(const Rows&, double, const Bfloat16*, const Bfloat16*, Bfloat16*, float*, void*);
template void rms_norm(const Rows&, double, const Float16*, const Float16*, Float16*, float*, void*);

STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 1, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 2, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 3, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 4, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 6, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 8, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 4, BlockOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 1, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 2, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 3, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 4, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 6, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 8, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 4, BlockOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 1, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 2, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 3, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 4, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 6, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 8, WarpOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 4, BlockOfRow, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_kernel<float, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_kernel<Bfloat16, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_kernel<Float16, LayerNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 1, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 2, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 3, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 4, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 6, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 8, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<float, 4, BlockOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 1, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 2, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 3, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 4, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 6, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 8, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Bfloat16, 4, BlockOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 1, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 2, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 3, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 4, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 6, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 8, WarpOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_held_kernel<Float16, 4, BlockOfRow, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_kernel<float, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_kernel<Bfloat16, RmsNorm>);
STOWAGE_CUDA_KERNEL(norm_kernel<Float16, RmsNorm>);

}  // namespace stowage::cuda
