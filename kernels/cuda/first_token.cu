#include "kernels/cuda/embedding.h"

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace stowage::cuda {

inline constexpr int first_token_threads = 256;

// A thread's pack: `left` elements from `at` of a row on.
struct PackOfRow {
  std::int64_t row, at, left;
};

template <class T>
__device__ PackOfRow pack_of_row(std::int64_t width) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t packs = (width + pack_size<T> - 1) / pack_size<T>;
  const std::int64_t at = i % packs * pack_size<T>;
  return {i / packs, at, width - at};
}

template <class T>
__global__ void first_token_kernel(FirstTokenShape shape, const T* x, T* y, bool aligned) {
  const PackOfRow of = pack_of_row<T>(shape.width);
  if (of.row >= shape.samples) return;
  const T* from = x + of.row * shape.sequence * shape.width + of.at;
  store_pack(y + of.row * shape.width + of.at, of.left, aligned, load_pack(from, of.left, aligned));
}

template <class T>
__global__ void first_token_backward_kernel(FirstTokenShape shape, const T* dy, T* dx, bool aligned) {
  const PackOfRow of = pack_of_row<T>(shape.width);
  if (of.row >= shape.samples * shape.sequence) return;
  Pack<T> pack{};
  if (of.row % shape.sequence == 0)
    pack = load_pack(dy + of.row / shape.sequence * shape.width + of.at, of.left, aligned);
  store_pack(dx + of.row * shape.width + of.at, of.left, aligned, pack);
}

template <class T>
LaunchShape first_token_shape(std::int64_t rows, std::int64_t width) {
  return {{blocks_for(rows * blocks_for(width, pack_size<T>), first_token_threads)}, first_token_threads};
}

template <class T>
void first_token(const FirstTokenShape& shape, const T* x, T* y, void* stream) {
  launch(first_token_kernel<T>, "first_token", first_token_shape<T>(shape.samples, shape.width), stream,
         shape, x, y, rows_are_aligned<T>(shape.width, x, y));
}

template <class T>
void first_token_backward(const FirstTokenShape& shape, const T* dy, T* dx, void* stream) {
  launch(first_token_backward_kernel<T>, "first_token_backward",
         first_token_shape<T>(shape.samples * shape.sequence, shape.width), stream, shape, dy, dx,
         rows_are_aligned<T>(shape.width, dy, dx));
}

template void first_token(const FirstTokenShape&, const float*, float*, void*);
template void first_token(const FirstTokenShape&, const Bfloat16*, Bfloat16*, void*);
template void first_token_backward(const FirstTokenShape&, const float*, float*, void*);
template void first_token_backward(const FirstTokenShape&, const Bfloat16*, Bfloat16*, void*);
template void first_token(const FirstTokenShape&, const Float16*, Float16*, void*);
template void first_token_backward(const FirstTokenShape&, const Float16*, Float16*, void*);

STOWAGE_CUDA_KERNEL(first_token_kernel<float>);
STOWAGE_CUDA_KERNEL(first_token_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(first_token_kernel<Float16>);
STOWAGE_CUDA_KERNEL(first_token_backward_kernel<float>);
STOWAGE_CUDA_KERNEL(first_token_backward_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(first_token_backward_kernel<Float16>);

}  // namespace stowage::cuda
