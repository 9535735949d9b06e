#include "kernels/cuda/first_token.h"

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/math/bfloat16.h"

namespace stowage::cuda {

inline constexpr int first_token_threads = 256;

template <class T>
__global__ void first_token_kernel(FirstTokenShape shape, const T* x, T* y) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= shape.samples * shape.width) return;
  y[i] = x[i / shape.width * shape.sequence * shape.width + i % shape.width];
}

template <class T>
__global__ void first_token_backward_kernel(FirstTokenShape shape, const T* dy, T* dx) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= shape.samples * shape.sequence * shape.width) return;
  const std::int64_t token = i / shape.width;
  const bool first = token % shape.sequence == 0;
  dx[i] = first ? dy[token / shape.sequence * shape.width + i % shape.width] : static_cast<T>(0.0F);
}

inline LaunchShape first_token_shape(std::int64_t elements) {
  return {{blocks_for(elements, first_token_threads)}, first_token_threads};
}

template <class T>
void first_token(const FirstTokenShape& shape, const T* x, T* y, void* stream) {
  launch(first_token_kernel<T>, "first_token", first_token_shape(shape.samples * shape.width), stream, shape,
         x, y);
}

template <class T>
void first_token_backward(const FirstTokenShape& shape, const T* dy, T* dx, void* stream) {
  launch(first_token_backward_kernel<T>, "first_token_backward",
         first_token_shape(shape.samples * shape.sequence * shape.width), stream, shape, dy, dx);
}

template void first_token(const FirstTokenShape&, const float*, float*, void*);
template void first_token(const FirstTokenShape&, const Bfloat16*, Bfloat16*, void*);
template void first_token_backward(const FirstTokenShape&, const float*, float*, void*);
template void first_token_backward(const FirstTokenShape&, const Bfloat16*, Bfloat16*, void*);

STOWAGE_CUDA_KERNEL(first_token_kernel<float>);
STOWAGE_CUDA_KERNEL(first_token_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(first_token_backward_kernel<float>);
STOWAGE_CUDA_KERNEL(first_token_backward_kernel<Bfloat16>);

}  // namespace stowage::cuda
