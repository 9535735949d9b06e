// One warp that does what kernels/cuda/fragments.h offers, on words that the caller lays out and reads back:
// nvcc compiles the file for the program, the shim for the fake.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

namespace stowage::test {

inline constexpr int warp_lanes = 32;
inline constexpr int tile_stride = 24;  // elements between the rows of a 16 x 16 block

struct FragmentInput {
  std::uint32_t left[warp_lanes][4], right[warp_lanes][4];
  float sums[warp_lanes][8];
  alignas(16) std::uint16_t tile[16][tile_stride];
};

struct FragmentOutput {
  float products[warp_lanes][8];         // sums + left right
  std::uint32_t rounded[warp_lanes][4];  // sums
  std::uint32_t left_block[warp_lanes][4], right_block[warp_lanes][4], right_transpose[warp_lanes][4];
};

// Both in device memory. T: Bfloat16 or Float16.
template <class T>
cudaError_t launch_fragments(const FragmentInput* input, FragmentOutput* output);

}  // namespace stowage::test
