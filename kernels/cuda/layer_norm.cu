#include "kernels/cuda/layer_norm.h"

#include <cmath>

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/row_shape.h"

namespace stowage::cuda {

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

template <class T>
void layer_norm(const Rows& shape, double epsilon, const T* x, const T* gain, const T* bias, T* y,
                float* mean, float* rstd, void* stream) {
  launch(layer_norm_kernel<T>, "layer_norm", row_shape<T>(shape), stream, shape.width, epsilon, x, gain, bias,
         y, mean, rstd, rows_are_aligned<T>(shape.width, x, gain, bias, y));
}

template void layer_norm(const Rows&, double, const float*, const float*, const float*, float*, float*,
                         float*, void*);
template void layer_norm(const Rows&, double, const Bfloat16*, const Bfloat16*, const Bfloat16*, Bfloat16*,
                         float*, float*, void*);
template void layer_norm(const Rows&, double, const Float16*, const Float16*, const Float16*, Float16*,
                         float*, float*, void*);
STOWAGE_CUDA_KERNEL(layer_norm_kernel<float>);
STOWAGE_CUDA_KERNEL(layer_norm_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(layer_norm_kernel<Float16>);

}  // namespace stowage::cuda
