// Blocks for kernels that give each row a block.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"

namespace stowage::cuda {

inline constexpr int most_row_threads = 256;

// Enough whole warps for one pack a thread.
template <class T>
std::int64_t threads_of_row(std::int64_t width) {
  return blocks_for(width, static_cast<std::int64_t>(pack_size<T>) * warp_size) * warp_size;
}

// One block for each row, with no more threads than it has packs.
template <class T>
LaunchShape row_shape(const Rows& shape) {
  return {{shape.rows},
          static_cast<int>(std::min<std::int64_t>(threads_of_row<T>(shape.width), most_row_threads))};
}

}  // namespace stowage::cuda
