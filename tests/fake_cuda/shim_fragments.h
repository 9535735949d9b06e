// A warp's matrix instructions, which kernels/cuda/fragments.h calls: what PTX's mma.m16n8k16 (bf16 or f16,
// sums in f32) and ldmatrix do, by exchange through memory that the warp's lanes share. Included by shim.h
// alone.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fake_cuda/shim_runtime.h"

namespace stowage_shim {

// Of a block's warps; blocks are one-dimensional. Lanes write their part, wait for each other, and read.
struct WarpExchange {
  float left[16][16], right_transpose[8][16];
  const void* rows[32];
};

inline WarpExchange& warp_exchange() {
  static thread_local WarpExchange of_warps[32];
  return of_warps[stowage_shim_position.thread.x / 32];
}

// Element `index` of a word: 0 is its lower half. T: the type of the elements.
template <class T>
float element(std::uint32_t word, unsigned index) {
  const auto bits = static_cast<std::uint16_t>(index == 0 ? word : word >> 16U);
  return static_cast<float>(std::bit_cast<T>(bits));
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type". A: element i of a lane stands in row
// group (+ 8 for i = 2, 3, 6, 7), column pair + i % 2 (+ 8 for i >= 4). B: row pair + i % 2 (+ 8 for i >= 2),
// column group. C: row group (+ 8 for i >= 2), column pair + i % 2.
template <class T>
void multiply_add(const std::uint32_t (&left)[4], const std::uint32_t* right, float* sums) {
  WarpExchange& warp = warp_exchange();
  const unsigned group = stowage_shim_lane() / 4, pair = stowage_shim_lane() % 4 * 2;
  for (unsigned i = 0; i < 8; ++i)
    warp.left[group + i / 2 % 2 * 8][pair + i % 2 + i / 4 * 8] = element<T>(left[i / 2], i % 2);
  for (unsigned i = 0; i < 4; ++i)
    warp.right_transpose[group][pair + i % 2 + i / 2 * 8] = element<T>(right[i / 2], i % 2);
  stowage_shim_sync_warp();
  for (unsigned i = 0; i < 4; ++i) {
    const float* a = warp.left[group + i / 2 * 8];
    const float* b = warp.right_transpose[pair + i % 2];
    for (unsigned k = 0; k < 16; ++k) sums[i] += a[k] * b[k];
  }
  stowage_shim_sync_warp();
}

// Matrix i's row r is at the address that lane 8 i + r names. A lane gets elements 2 (lane % 4) + {0, 1} of
// row lane / 4; transposed, of column lane / 4.
inline void load_matrices(const void* row, bool transposed, std::uint32_t (&words)[4]) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    std::fputs("shim: a matrix's row in shared memory is not 16-byte aligned\n", stderr);
    std::abort();
  }
  WarpExchange& warp = warp_exchange();
  const unsigned lane = stowage_shim_lane();
  warp.rows[lane] = row;
  stowage_shim_sync_warp();
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t halves[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned along = lane % 4 * 2 + i;
      const unsigned from_row = transposed ? along : lane / 4;
      const unsigned from_column = transposed ? lane / 4 : along;
      std::memcpy(
          &halves[i],
          static_cast<const char*>(warp.rows[matrix * 8 + from_row]) + from_column * sizeof(halves[i]),
          sizeof(halves[i]));
    }
    words[matrix] = halves[0] | static_cast<std::uint32_t>(halves[1]) << 16U;
  }
  stowage_shim_sync_warp();
}

}  // namespace stowage_shim
