// Grids for kernels that treat each element alone: a thread has one pack.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace stowage::cuda {

inline constexpr int elementwise_threads = 256;

// First element of this thread's pack.
__device__ inline std::int64_t pack_start(int size) {
  return (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * size;
}

template <class T>
LaunchShape pack_shape(std::int64_t count) {
  return {{blocks_for(count, static_cast<std::int64_t>(pack_size<T>) * elementwise_threads)},
          elementwise_threads};
}

}  // namespace stowage::cuda
