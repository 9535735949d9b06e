// Rows that are read once: a warp or a block holds its row in registers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"

namespace stowage::cuda {

inline constexpr int warps_of_rows = 4;        // warps of a block in which each warp has a row of its own
inline constexpr int most_held_threads = 512;  // most threads of a block that has one row

// Threads that share a row: `index` of the calling thread among `threads()`, and sums over them.
struct WarpOfRow {
  static constexpr int most_threads = warps_of_rows * warp_size;
  __device__ static std::int64_t row() {
    return static_cast<std::int64_t>(blockIdx.x) * warps_of_rows + threadIdx.x / warp_size;
  }
  __device__ static int index() { return static_cast<int>(threadIdx.x) % warp_size; }
  __device__ static int threads() { return warp_size; }
  __device__ static float sum(float value, float*) { return reduce_warp<Sum>(value); }
};
struct BlockOfRow {
  static constexpr int most_threads = most_held_threads;
  __device__ static std::int64_t row() { return blockIdx.x; }
  __device__ static int index() { return static_cast<int>(threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ static float sum(float value, float* shared) { return reduce_block<Sum>(value, shared); }
};

// A thread's packs of a row of `width` elements, as they lie in memory: from `first` on, `step` elements
// apart, zeros behind the end of the row. The loads are all under way together.
template <class T, int packs>
struct HeldRow {
  SixteenBytes words[packs];

  __device__ HeldRow(const T* row, int first, int step, int width, bool aligned) {
    if (aligned) {
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        const int at = first + p * step;
        words[p] = at < width ? *reinterpret_cast<const SixteenBytes*>(row + at) : SixteenBytes{};
      }
    } else {
#pragma unroll
      for (int p = 0; p < packs; ++p)
        words[p] = load_words(row + first + p * step, width - first - p * step, false);
    }
  }
  __device__ Pack<T> pack(int p) const {
    const T* const type = nullptr;
    return unpack(words[p], type);
  }
};

// Blocks for kernels that give each row a block.

inline constexpr int most_row_threads = 256;

// Returns the threads of enough whole warps for one pack a thread.
template <class T>
std::int64_t threads_of_row(std::int64_t width) {
  return blocks_for(width, static_cast<std::int64_t>(pack_size<T>) * warp_size) * warp_size;
}

// Returns a launch of one block for each row, with no more threads than the row's packs need.
template <class T>
LaunchShape row_shape(const Rows& shape) {
  return {{shape.rows},
          static_cast<int>(std::min<std::int64_t>(threads_of_row<T>(shape.width), most_row_threads))};
}

}  // namespace stowage::cuda
