// Parts of the kernels that compute a softmax of logits and its gradient, a block of threads for each row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/math/exponential.h"

namespace stowage::cuda {

inline constexpr int most_loss_threads = 512;
inline constexpr float below_all = -3.0e38F;

// Sum of exp(value - largest) over the values seen so far.
struct SoftmaxSum {
  float largest = below_all, sum = 0;

  // Adds the first `count` of the values, with one rescaling for all. A NaN reaches the sum.
  template <int size>
  __device__ void add(const float (&values)[size], std::int64_t count) {
    float top = largest;
#pragma unroll
    for (int k = 0; k < size; ++k) {
      if (k < count) top = Largest::of(top, values[k]);
    }
    if (top > largest) {
      sum *= exponential(largest - top);
      largest = top;
    }
#pragma unroll
    for (int k = 0; k < size; ++k) {
      if (k < count) sum += exponential(values[k] - largest);
    }
  }

  __device__ float log_of_sum() const { return largest + std::log(sum); }
};

// The whole block computes the sum of a row. `shared` holds one float for each warp.
template <class T>
__device__ SoftmaxSum softmax_sum_of(std::int64_t width, const T* x, bool aligned, float* shared) {
  SoftmaxSum mine;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>; i < width; i += step) {
    mine.add(load_pack(x + i, width - i, aligned).values, width - i);
  }
  const float largest = reduce_block<Largest>(mine.largest, shared);
  return {largest, reduce_block<Sum>(mine.sum * exponential(mine.largest - largest), shared)};
}

// Writes the gradient of a row, 0 unless it has a target; a target that is none of these columns changes
// none.
template <class T>
__device__ void write_gradient(const Logits& shape, bool has_target, std::int64_t target, float log_sum_exp,
                               float share, const T* x, T* y, bool aligned) {
  const std::int64_t width = shape.columns;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * pack_size<T>;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * pack_size<T>; i < width; i += step) {
    Pack<T> pack = load_pack(x + i, width - i, aligned);
    for (int k = 0; k < pack_size<T>; ++k) {
      const float weight = exponential(pack.values[k] - log_sum_exp) * share;
      const bool counts = has_target && i + k < shape.vocabulary;
      pack.values[k] = !counts ? 0.0F : i + k == target ? weight - share : weight;
    }
    store_pack(y + i, width - i, aligned, pack);
  }
}

__device__ inline float share_of(double count, double loss_scale) {
  return static_cast<float>(count == 0 ? 0 : loss_scale / count);
}

// The whole block counts the targets; `shared` holds one double for each warp.
__device__ inline double counted(std::int64_t rows, const std::int32_t* targets, double* shared) {
  double count = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) count += targets[row] >= 0 ? 1 : 0;
  return reduce_block<Sum>(count, shared);
}

// Returns a launch of one block for each row, with no more threads than the row's packs need.
template <class T>
LaunchShape loss_shape(const Logits& shape) {
  const std::int64_t warps = blocks_for(shape.columns, static_cast<std::int64_t>(pack_size<T>) * warp_size);
  return {{shape.rows}, static_cast<int>(std::min<std::int64_t>(warps * warp_size, most_loss_threads))};
}

inline constexpr LaunchShape one_block{{}, most_loss_threads};

}  // namespace stowage::cuda
