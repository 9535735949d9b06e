// This file is compiled with contraction off (-fmad=false): the host's codec must give the same bits.
#include "kernels/cuda/codec.h"

#include <bit>
#include <type_traits>

#include "kernels/cuda/codec_lane.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/math/group_codes.h"
#include "kernels/math/group_search.h"

namespace stowage::cuda {

// A group's elements, divided by a power of two; a lane has its own.
struct WarpGroup {
  GroupRange range;
  float values[elements_of_sum];

  // Loads the elements as they are, the array's last one in place of those that do not exist.
  template <class T>
  __device__ void load(const T* from, std::int64_t count, const CodecLane& of, bool aligned) {
    if (of.left >= elements_of_sum) {
      load_packs(from + of.first, of.left, aligned, values);
      return;
    }
#pragma unroll
    for (int k = 0; k < elements_of_sum; ++k)
      values[k] = static_cast<float>(from[of.first + k < count ? of.first + k : count - 1]);
  }

  __device__ void find_range() {
    std::int32_t least = order_of(values[0]), greatest = least;
#pragma unroll
    for (int k = 1; k < elements_of_sum; ++k) {
      least = smaller(least, order_of(values[k]));
      greatest = greater(greatest, order_of(values[k]));
    }
    range = {number_of(~reduce_warp<Largest>(~least)), number_of(reduce_warp<Largest>(greatest))};
  }
  __device__ void scale(float by) {
#pragma unroll
    for (int k = 0; k < elements_of_sum; ++k) values[k] *= by;
  }

  // The order of additions is that of group_search.h: lane i + half's sum is added to lane i's.
  template <class Codes>
  __device__ float error(const Codes& codes) const {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < elements_of_sum; ++k) {
      const float off = codes.error(values[k]);
      sum += off * off;
    }
    return reduce_warp<Sum>(sum);
  }

  template <int bits, class Codes>
  __device__ LaneCodes<bits> lane_codes(const Codes& codes, std::int64_t left) const {
    LaneCodes<bits> all = 0;
#pragma unroll
    for (int k = 0; k < elements_of_sum; ++k)
      if (k < left) all |= static_cast<LaneCodes<bits>>(codes.code(values[k])) << (bits * k);
    return all;
  }
};

// Requires that the group's elements are scaled by its unit.
template <int bits>
__device__ inline LaneCodes<bits> codes_of(const WarpGroup& group, GroupHeader header, std::int64_t left) {
  const float scale = scale_of(header) * group.range.unit();
  return is_piecewise(header) ? group.lane_codes<bits>(PiecewiseCodes<bits>(header, scale), left)
                              : group.lane_codes<bits>(UniformCodes<bits>(header, scale), left);
}

template <int bits, class T>
__global__ void encode_kernel(std::int64_t count, const T* from, std::byte* to, bool aligned,
                              bool codes_aligned) {
  const CodecLane of(count);
  if (of.group * code_group >= count) return;
  WarpGroup group;
  group.load(from, count, of, aligned);
  group.find_range();
  GroupHeader header = group.range.unsearched_header();
  LaneCodes<bits> codes = 0;
  if (group.range.is_searched()) {
    group.scale(group.range.unit());
    header = best_header<bits>(group);
    codes = codes_of<bits>(group, header, of.left);
  }
  store_codes<bits>(codes, of.left, to + of.first * bits / 8, codes_aligned);
  if (CodecLane::lane() == 0) write_header(header, to + of.header(count, CodeBits{bits}));
}

// Stores the NaN that the host decodes to. A card's conversions have another one.
template <class T>
__device__ inline void store_nans(T* to, std::int64_t left) {
  T nan;
  if constexpr (std::is_same_v<T, float>)
    nan = std::bit_cast<float>(0x7fc00000U);
  else
    nan.bits = std::is_same_v<T, Bfloat16> ? 0x7fc0U : 0x7e00U;
  for (int k = 0; k < elements_of_sum; ++k)
    if (k < left) to[k] = nan;
}

template <int bits, class T, class Levels>
__device__ inline void store_levels(const Levels& levels, LaneCodes<bits> codes, float power, T* to,
                                    std::int64_t left, bool aligned) {
  float values[elements_of_sum];
#pragma unroll
  for (int k = 0; k < elements_of_sum; ++k) {
    const auto code = static_cast<std::int32_t>(codes >> (bits * k) & ((1U << bits) - 1));
    values[k] = limited(levels.level(code) * power, greatest_decoded<T>);
  }
  store_packs(to, left, aligned, values);
}

template <int bits, class T>
__global__ void decode_kernel(std::int64_t count, const std::byte* from, T* to, bool aligned,
                              bool codes_aligned) {
  const CodecLane of(count);
  if (of.left <= 0) return;
  const LaneCodes<bits> codes = load_codes<bits>(from + of.first * bits / 8, of.left, codes_aligned);
  const GroupHeader header = read_header(from + of.header(count, CodeBits{bits}));
  T* const elements = to + of.first;
  if (is_nan(header))
    store_nans(elements, of.left);
  else if (is_piecewise(header))
    store_levels<bits>(PiecewiseLevels<bits>(header), codes, power_of(header), elements, of.left, aligned);
  else
    store_levels<bits>(UniformLevels<bits>(header), codes, power_of(header), elements, of.left, aligned);
}

inline LaunchShape codec_shape(std::int64_t count) {
  return {{blocks_for(code_groups(count), groups_of_block)}, codec_threads};
}
// Whether the codes of all lanes are aligned words.
inline bool codes_are_aligned(const std::byte* codes, CodeBits bits) {
  return reinterpret_cast<std::uintptr_t>(codes) % static_cast<std::uintptr_t>(bits) == 0;
}

template <class T>
void encode(CodeBits bits, std::int64_t count, const T* from, std::byte* to, void* stream) {
  if (count == 0) return;
  launch(bits == CodeBits::four ? encode_kernel<4, T> : encode_kernel<8, T>, "encode", codec_shape(count),
         stream, count, from, to, is_aligned(from), codes_are_aligned(to, bits));
}

template <class T>
void decode(CodeBits bits, std::int64_t count, const std::byte* from, T* to, void* stream) {
  if (count == 0) return;
  launch(bits == CodeBits::four ? decode_kernel<4, T> : decode_kernel<8, T>, "decode", codec_shape(count),
         stream, count, from, to, is_aligned(to), codes_are_aligned(from, bits));
}

template void encode(CodeBits, std::int64_t, const float*, std::byte*, void*);
template void encode(CodeBits, std::int64_t, const Bfloat16*, std::byte*, void*);
template void encode(CodeBits, std::int64_t, const Float16*, std::byte*, void*);
template void decode(CodeBits, std::int64_t, const std::byte*, float*, void*);
template void decode(CodeBits, std::int64_t, const std::byte*, Bfloat16*, void*);
template void decode(CodeBits, std::int64_t, const std::byte*, Float16*, void*);

STOWAGE_CUDA_KERNEL(encode_kernel<4, float>);
STOWAGE_CUDA_KERNEL(encode_kernel<4, Bfloat16>);
STOWAGE_CUDA_KERNEL(encode_kernel<4, Float16>);
STOWAGE_CUDA_KERNEL(encode_kernel<8, float>);
STOWAGE_CUDA_KERNEL(encode_kernel<8, Bfloat16>);
STOWAGE_CUDA_KERNEL(encode_kernel<8, Float16>);
STOWAGE_CUDA_KERNEL(decode_kernel<4, float>);
STOWAGE_CUDA_KERNEL(decode_kernel<4, Bfloat16>);
STOWAGE_CUDA_KERNEL(decode_kernel<4, Float16>);
STOWAGE_CUDA_KERNEL(decode_kernel<8, float>);
STOWAGE_CUDA_KERNEL(decode_kernel<8, Bfloat16>);
STOWAGE_CUDA_KERNEL(decode_kernel<8, Float16>);

}  // namespace stowage::cuda
