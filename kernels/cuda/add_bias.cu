#include "kernels/cuda/gemm.h"

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace stowage::cuda {

inline constexpr int bias_threads = 256;

// A thread has one pack of a row: blockIdx.x counts packs of the row, blockIdx.y rows.
template <class T>
__global__ void add_bias_kernel(std::int64_t rows, std::int64_t columns, const T* bias, T* y, bool aligned) {
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * pack_size<T>;
  if (column >= columns) return;
  const Pack<T> shift = load_pack(bias + column, columns - column, aligned);
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T* const at = y + row * columns + column;
    Pack<T> pack = load_pack(at, columns - column, aligned);
    for (int k = 0; k < pack_size<T>; ++k) pack.values[k] += shift.values[k];
    store_pack(at, columns - column, aligned, pack);
  }
}

template <class T>
void add_bias(std::int64_t rows, std::int64_t columns, const T* bias, T* y, void* stream) {
  constexpr std::int64_t most_rows_of_blocks = 1024;
  if (rows == 0 || columns == 0) return;
  const std::int64_t blocks = blocks_for(columns, static_cast<std::int64_t>(pack_size<T>) * bias_threads);
  launch(add_bias_kernel<T>, "add_bias",
         {{blocks, rows < most_rows_of_blocks ? rows : most_rows_of_blocks}, bias_threads}, stream, rows,
         columns, bias, y, rows_are_aligned<T>(columns, bias, y));
}

template void add_bias(std::int64_t, std::int64_t, const float*, float*, void*);
template void add_bias(std::int64_t, std::int64_t, const Bfloat16*, Bfloat16*, void*);
template void add_bias(std::int64_t, std::int64_t, const Float16*, Float16*, void*);

STOWAGE_CUDA_KERNEL(add_bias_kernel<float>);
STOWAGE_CUDA_KERNEL(add_bias_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(add_bias_kernel<Float16>);

}  // namespace stowage::cuda
