// Lanes of the codec's kernels: a warp has a group, and each of its lanes the elements of one sum of
// group_search.h, 8 consecutive ones, whose codes are a word of 4 or 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/reduce.h"
#include "kernels/math/group_search.h"
#include "stowage/codec.h"

namespace stowage::cuda {

inline constexpr int codec_threads = 256, groups_of_block = codec_threads / warp_size;
static_assert(error_sums == warp_size && error_sums * elements_of_sum == code_group);

// This thread's elements in an array of `all`: the `left` first ones of the 8 exist; none if `left` is not
// positive.
struct CodecLane {
  std::int64_t group, first, left;

  __device__ explicit CodecLane(std::int64_t all)
      : group(static_cast<std::int64_t>(blockIdx.x) * groups_of_block + threadIdx.x / warp_size),
        first(group * code_group + lane() * elements_of_sum),
        left(all - first) {}
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % warp_size; }
  __device__ std::int64_t header(std::int64_t all, CodeBits bits) const {
    return static_cast<std::int64_t>(code_bytes(all, bits)) + group * code_header_bytes;
  }
};

// The codes of a lane, the first in the lowest bits.
template <int bits>
using LaneCodes = std::conditional_t<bits == 4, std::uint32_t, std::uint64_t>;
template <int bits>
struct __attribute__((may_alias, aligned(bits))) LaneBytes {
  LaneCodes<bits> codes;
};

// Byte `i` of a lane's codes exists if an element that it is for does.
template <int bits>
__device__ inline bool has_byte(std::int64_t left, int i) {
  return 8 * i < left * bits;
}
template <int bits>
__device__ inline void store_codes(LaneCodes<bits> codes, std::int64_t left, std::byte* to, bool aligned) {
  if (aligned && left >= elements_of_sum) {
    reinterpret_cast<LaneBytes<bits>*>(to)->codes = codes;
    return;
  }
  for (int i = 0; i < bits; ++i)
    if (has_byte<bits>(left, i)) to[i] = static_cast<std::byte>(codes >> (8 * i));
}
// Returns codes of 0 for elements that do not exist.
template <int bits>
__device__ inline LaneCodes<bits> load_codes(const std::byte* from, std::int64_t left, bool aligned) {
  if (aligned && left >= elements_of_sum) return reinterpret_cast<const LaneBytes<bits>*>(from)->codes;
  LaneCodes<bits> codes = 0;
  for (int i = 0; i < bits; ++i)
    if (has_byte<bits>(left, i)) codes |= static_cast<LaneCodes<bits>>(from[i]) << (8 * i);
  return codes;
}

}  // namespace stowage::cuda
