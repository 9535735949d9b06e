// Products of blocks of bf16 or f16 by a warp's tensor cores, summed in f32: PTX's mma.m16n8k16 and ldmatrix,
// compute capability 8.0 and newer.
//
// Requires that all 32 lanes of a warp call these functions together. A block is 16 x 16 elements; the PTX
// ISA defines the elements that a lane holds ("Matrix Fragments for mma.m16n8k16 with floating point type").
// With group = lane / 4 and pair = 2 (lane % 4), the two elements of a word, the first one in the lower
// half, are:
//
//   word                0                    1                    2                    3
//   LeftFragment   row group,           row group + 8,       row group,           row group + 8,
//                  columns pair, + 1    columns pair, + 1    columns pair + 8, 9  columns pair + 8, 9
//   RightFragment  rows pair, + 1,      rows pair + 8, 9,    rows pair, + 1,      rows pair + 8, 9,
//                  column group         column group         column group + 8     column group + 8
//
// A lane's eight sums are placed like the elements of a LeftFragment, so that a block of sums, rounded, is
// the left operand of the next product without a move between lanes (FlashAttention-2, section 3.3).
//
// In tests that compile kernels as C++, a shim exchanges the words between the lanes of an emulated warp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/pack.h"

namespace stowage::cuda {

inline constexpr int block_side = 16;

struct LeftFragment {
  std::uint32_t words[4];
};

struct RightFragment {
  std::uint32_t words[4];
};

struct SumsFragment {
  float values[8] = {};
};

__device__ inline int lane_group() { return static_cast<int>(threadIdx.x) % 32 / 4; }
__device__ inline int lane_pair() { return static_cast<int>(threadIdx.x) % 4 * 2; }

// Four 8 x 8 matrices from shared memory: lanes 8 i … 8 i + 7 name the rows of matrix i, which are 16 bytes
// each, 16-byte aligned. A lane gets the elements pair and pair + 1 of each matrix's row `group`; transposed,
// of its column.
template <bool transposed, class T>
__device__ inline void load_matrices(const T* row, std::uint32_t (&words)[4]) {
#ifdef STOWAGE_CUDA_SHIM
  stowage_shim::load_matrices(row, transposed, words);
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

// sums[16, 8] += left[16, 16] right[16, 8], of which a lane holds 4, 4 and 2 words. T: Bfloat16 or Float16.
template <class T>
__device__ inline void multiply_add(const std::uint32_t (&left)[4], const std::uint32_t* right, float* sums) {
#ifdef STOWAGE_CUDA_SHIM
  stowage_shim::multiply_add<T>(left, right, sums);
#else
  if constexpr (std::is_same_v<T, Float16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  }
#endif
}

// The following blocks start at `block` in shared memory; their rows lie `stride` elements apart, each
// 16-byte aligned.

template <class T>
__device__ inline LeftFragment left_block(const T* block, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  LeftFragment fragment;
  load_matrices<false>(block + lane % 16 * stride + lane / 16 * 8, fragment.words);
  return fragment;
}

template <class T>
__device__ inline RightFragment right_block(const T* block, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RightFragment fragment;
  load_matrices<true>(block + lane % 16 * stride + lane / 16 * 8, fragment.words);
  return fragment;
}

// The right operand is the block's transpose.
template <class T>
__device__ inline RightFragment right_transpose(const T* block, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RightFragment fragment;
  load_matrices<false>(block + (lane / 16 * 8 + lane % 8) * stride + lane % 16 / 8 * 8, fragment.words);
  return fragment;
}

// sums += left right
template <class T>
__device__ inline void multiply_add(const LeftFragment& left, const RightFragment& right,
                                    SumsFragment& sums) {
  multiply_add<T>(left.words, right.words, sums.values);
  multiply_add<T>(left.words, right.words + 2, sums.values + 4);
}

template <class T>
__device__ inline LeftFragment rounded(const SumsFragment& sums) {
  LeftFragment fragment;
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    fragment.words[word] = packed_pair<T>(sums.values[2 * word], sums.values[2 * word + 1]);
  }
  return fragment;
}

}  // namespace stowage::cuda
