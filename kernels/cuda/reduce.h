// Sums and maxima over a warp and over a block, and exchanges between lanes: the one place with
// warp shuffles.
//
// The order of the additions is fixed, and every thread gets the result.
#pragma once

#include <cmath>
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
  __device__ static float of(float a, float b) { return std::fmax(a, b); }  // one instruction
};

// Returns the value of the lane whose number differs in the bits of `mask`. Requires all 32 lanes.
template <class T>
__device__ inline T swap_lanes(T value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}

// Reduces over groups of `width` neighbouring threads, a power of two of at most 32. Requires all 32 lanes.
template <class Operation, class T>
__device__ inline T reduce_warp(T value, int width = warp_size) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    value = Operation::of(value, swap_lanes(value, distance));
  }
  return value;
}

struct Or {
  __device__ static unsigned of(unsigned a, unsigned b) { return a | b; }
};

// Bit l is lane l's value. Requires all 32 lanes.
__device__ inline unsigned ballot(bool value) {
#ifdef STOWAGE_CUDA_SHIM
  return reduce_warp<Or>((value ? 1U : 0U) << (threadIdx.x % warp_size));
#else
  return __ballot_sync(0xffffffffU, value);
#endif
}

// Reduces every value over a one-dimensional block of whole warps. `shared` holds `count` Ts for each warp;
// it is free again when the call returns.
template <class Operation, int count, class T>
__device__ inline void reduce_block(T (&values)[count], T* shared) {
  const unsigned warps = blockDim.x / warp_size;
  for (T& value : values) value = reduce_warp<Operation>(value);
  if (warps == 1) return;
  if (threadIdx.x % warp_size == 0) {
    for (int i = 0; i < count; ++i) shared[threadIdx.x / warp_size * count + i] = values[i];
  }
  __syncthreads();
  for (int i = 0; i < count; ++i) {
    values[i] = shared[i];
    for (unsigned warp = 1; warp < warps; ++warp)
      values[i] = Operation::of(values[i], shared[warp * count + i]);
  }
  __syncthreads();
}

template <class Operation, class T>
__device__ inline T reduce_block(T value, T* shared) {
  T values[] = {value};
  reduce_block<Operation>(values, shared);
  return values[0];
}

}  // namespace stowage::cuda
