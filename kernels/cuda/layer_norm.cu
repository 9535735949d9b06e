#include "kernels/cuda/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"

namespace stowage::cuda {

inline constexpr int most_row_threads = 256;

// One block for each row, with no more threads than it has packs.
template <class T>
LaunchShape row_shape(const Rows& shape) {
  const std::int64_t warps = blocks_for(shape.width, static_cast<std::int64_t>(pack_size<T>) * warp_size);
  return {{shape.rows}, static_cast<int>(std::min<std::int64_t>(warps * warp_size, most_row_threads))};
}

template <class T>
__global__ void layer_norm_kernel(std::int64_t width, float epsilon, const T* x, const T* gain, const T* bias,
                                  T* y, float* mean, float* rstd, bool aligned) {
  __shared__ float shared[most_row_threads / warp_size];
  const std::int64_t row = blockIdx.x;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;
  x += row * width;
  y += row * width;

  float sum = 0;
  for (std::int64_t i = first; i < width; i += step) {
    for (const float value : load_pack(x + i, width - i, aligned).values) sum += value;
  }
  const float average = reduce_block<Sum>(sum, shared) / static_cast<float>(width);

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
    Pack<T> pack = load_pack(x + i, width - i, aligned);
    const Pack<T> gains = load_pack(gain + i, width - i, aligned);
    const Pack<T> biases = load_pack(bias + i, width - i, aligned);
    for (int k = 0; k < pack_size<T>; ++k) {
      pack.values[k] = (pack.values[k] - average) * inverse * gains.values[k] + biases.values[k];
    }
    store_pack(y + i, width - i, aligned, pack);
  }
  if (threadIdx.x == 0) {
    mean[row] = average;
    rstd[row] = inverse;
  }
}

// Behind the end of a row dy is read as 0, and adds nothing. dx may be dy: a thread writes what it alone
// has read.
template <class T>
__global__ void layer_norm_backward_kernel(std::int64_t width, const T* x, const T* gain, const float* mean,
                                           const float* rstd, const T* dy, T* dx, bool aligned) {
  __shared__ float shared[most_row_threads / warp_size];
  const std::int64_t row = blockIdx.x;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;
  const float average = mean[row];
  const float inverse = rstd[row];
  x += row * width;
  dy += row * width;
  dx += row * width;

  float sum = 0;
  float product = 0;
  for (std::int64_t i = first; i < width; i += step) {
    const Pack<T> at = load_pack(x + i, width - i, aligned);
    const Pack<T> flow = load_pack(dy + i, width - i, aligned);
    const Pack<T> gains = load_pack(gain + i, width - i, aligned);
    for (int k = 0; k < pack_size<T>; ++k) {
      const float g = flow.values[k] * gains.values[k];
      sum += g;
      product += g * ((at.values[k] - average) * inverse);
    }
  }
  const float level = reduce_block<Sum>(sum, shared) / static_cast<float>(width);
  const float slope = reduce_block<Sum>(product, shared) / static_cast<float>(width);

  for (std::int64_t i = first; i < width; i += step) {
    const Pack<T> at = load_pack(x + i, width - i, aligned);
    Pack<T> flow = load_pack(dy + i, width - i, aligned);
    const Pack<T> gains = load_pack(gain + i, width - i, aligned);
    for (int k = 0; k < pack_size<T>; ++k) {
      const float normal = (at.values[k] - average) * inverse;
      flow.values[k] = inverse * (flow.values[k] * gains.values[k] - level - normal * slope);
    }
    store_pack(dx + i, width - i, aligned, flow);
  }
}

template <class T>
void layer_norm(const Rows& shape, double epsilon, const T* x, const T* gain, const T* bias, T* y,
                float* mean, float* rstd, void* stream) {
  launch(layer_norm_kernel<T>, "layer_norm", row_shape<T>(shape), stream, shape.width, epsilon, x, gain, bias,
         y, mean, rstd, rows_are_aligned<T>(shape.width, x, gain, bias, y));
}

template <class T>
void layer_norm_backward(const Rows& shape, const T* x, const T* gain, const float* mean, const float* rstd,
                         const T* dy, T* dx, void* stream) {
  launch(layer_norm_backward_kernel<T>, "layer_norm_backward", row_shape<T>(shape), stream, shape.width, x,
         gain, mean, rstd, dy, dx, rows_are_aligned<T>(shape.width, x, gain, dy, dx));
}

template void layer_norm(const Rows&, double, const float*, const float*, const float*, float*, float*,
                         float*, void*);
template void layer_norm(const Rows&, double, const Bfloat16*, const Bfloat16*, const Bfloat16*, Bfloat16*,
                         float*, float*, void*);
template void layer_norm_backward(const Rows&, const float*, const float*, const float*, const float*,
                                  const float*, float*, void*);
template void layer_norm_backward(const Rows&, const Bfloat16*, const Bfloat16*, const float*, const float*,
                                  const Bfloat16*, Bfloat16*, void*);

STOWAGE_CUDA_KERNEL(layer_norm_kernel<float>);
STOWAGE_CUDA_KERNEL(layer_norm_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_kernel<float>);
STOWAGE_CUDA_KERNEL(layer_norm_backward_kernel<Bfloat16>);

}  // namespace stowage::cuda
