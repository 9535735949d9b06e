// Sums and maxima over a warp and over a block, and exchanges between lanes: the one place with warp
// shuffles.
//
// The order of the additions is fixed, and every thread gets the result.
#pragma once

#include <cstdint>

namespace stowage::cuda {

inline constexpr int warp_size = 32;

struct Sum {
  template <class T>
  __device__ static T of(T a, T b) {
    return a + b;
  }
};

struct Largest {
  template <class T>
  __device__ static T of(T a, T b) {
    return a < b ? b : a;
  }
};

// What the lane whose number differs in the bits of `mask` holds. All 32 take part.
template <class T>
__device__ inline T swap_lanes(T value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}

// Over groups of `width` neighbouring threads, a power of two of at most 32. All 32 take part.
template <class Operation, class T>
__device__ inline T reduce_warp(T value, int width = warp_size) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    value = Operation::of(value, swap_lanes(value, distance));
  }
  return value;
}

// Over a one-dimensional block of whole warps. `shared` holds one T for each warp; it is free again when
// the call returns.
template <class Operation, class T>
__device__ inline T reduce_block(T value, T* shared) {
  const unsigned warps = blockDim.x / warp_size;
  value = reduce_warp<Operation>(value);
  if (warps == 1) return value;
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = value;
  __syncthreads();
  T result = shared[0];
  for (unsigned warp = 1; warp < warps; ++warp) result = Operation::of(result, shared[warp]);
  __syncthreads();
  return result;
}

}  // namespace stowage::cuda
