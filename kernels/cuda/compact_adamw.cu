// This file is compiled with contraction off (-fmad=false): the host's AdamW must give the same bits.
#include <limits>
#include <type_traits>

#include "kernels/cuda/joint_launch.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/reduce.h"
#include "kernels/math/moment_codes.h"
#include "stowage/moments.h"

namespace stowage::cuda {

inline constexpr int compact_threads = static_cast<int>(moment_block);
// Moment blocks that one thread block updates after it has made its tables of codes once.
inline constexpr std::int64_t blocks_of_a_launch_block = 8;

__device__ inline float weight(const AdamWOperands<float>& of, std::int64_t i) { return of.parameter[i]; }
__device__ inline float weight(const AdamWOperands<Bfloat16>& of, std::int64_t i) {
  return joined({of.parameter[i], of.low[i]});
}
__device__ inline float weight(const AdamWOperands<Float16>& of, std::int64_t i) {
  return joined(HalfSplitWeight{of.parameter[i], of.low[i]});
}
__device__ inline void set_weight(const AdamWOperands<float>& of, std::int64_t i, float value) {
  of.new_parameter[i] = value;
}
__device__ inline void set_weight(const AdamWOperands<Bfloat16>& of, std::int64_t i, float value) {
  const SplitWeight halves = split(value);
  of.new_parameter[i] = halves.weight;
  of.new_low[i] = halves.low;
}

__device__ inline void set_weight(const AdamWOperands<Float16>& of, std::int64_t i, float value) {
  const HalfSplitWeight both = split_half(value);
  of.new_parameter[i] = both.weight;
  of.new_low[i] = both.low;
}

// Whether the norm is finite; otherwise nothing is updated.
template <class T>
__device__ inline bool is_finite(const AdamWOperands<T>& of) {
  return of.clip[0] < std::numeric_limits<double>::infinity();  // false for NaN
}

// Updates the weight of element i; returns the new moments.
template <class T>
__device__ inline AdamWElement<float> update_weight(const AdamWConstants<float>& constants,
                                                    const AdamWOperands<T>& of, std::int64_t i, float first,
                                                    float second) {
  const AdamWElement<float> next =
      adamw_update(constants, {weight(of, i), first, second}, static_cast<float>(of.gradient[i]));
  set_weight(of, i, next.parameter);
  return next;
}

template <class T, class Moments>
struct LaunchedCompactUpdate {
  AdamWConstants<float> constants;
  AdamWOperands<T> operands;
  Moments moments;
};

template <class T>
__global__ void bf16_moments_kernel(
    const __grid_constant__ JointUpdates<LaunchedCompactUpdate<T, Bf16Moments>> all) {
  const unsigned update = update_of_block(all);
  const AdamWOperands<T>& of = all.updates[update].operands;
  const Bf16Moments& moments = all.updates[update].moments;
  const std::int64_t block = blockIdx.x - all.first_block[update];
  const std::int64_t i = block * blockDim.x + threadIdx.x;
  if (i >= of.count || !is_finite(of)) return;
  AdamWConstants<float> constants = all.updates[update].constants;
  constants.scale = static_cast<float>(of.clip[1] / of.loss_scale);
  const AdamWElement<float> next = update_weight(constants, of, i, static_cast<float>(moments.first[i]),
                                                 static_cast<float>(moments.second[i]));
  moments.first[i] = Bfloat16(next.first_moment);
  const std::uint64_t element = moments.rounding.first + static_cast<std::uint64_t>(i);
  const auto words = random_words(moments.rounding, element / 8);
  moments.second[i] = rounded_by_chance(next.second_moment, rounding_draw(words, element));
}

// A thread has the same element in several blocks.
template <class T>
__global__ void eight_bit_moments_kernel(
    const __grid_constant__ JointUpdates<LaunchedCompactUpdate<T, EightBitMoments>> all) {
  const unsigned update = update_of_block(all);
  const AdamWOperands<T>& of = all.updates[update].operands;
  const EightBitMoments& moments = all.updates[update].moments;
  if (!is_finite(of)) return;
  __shared__ float first_shares[1 << first_moment_bits], first_boundaries[1 << first_moment_bits];
  __shared__ float second_shares[1 << second_moment_bits], second_boundaries[1 << second_moment_bits];
  __shared__ std::uint32_t shared[2 * compact_threads / warp_size];
  const unsigned code = threadIdx.x;
  if (code < 1U << first_moment_bits) {
    first_shares[code] = share_of_code(first_moment_bits, static_cast<int>(code));
    first_boundaries[code] = boundary_of_code(first_moment_bits, static_cast<int>(code));
  }
  second_shares[code] = share_of_code(second_moment_bits, static_cast<int>(code));
  second_boundaries[code] = boundary_of_code(second_moment_bits, static_cast<int>(code));
  __syncthreads();
  AdamWConstants<float> constants = all.updates[update].constants;
  constants.scale = static_cast<float>(of.clip[1] / of.loss_scale);
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x - all.first_block[update]) * blocks_of_a_launch_block;
  for (std::int64_t block = begin; block < begin + blocks_of_a_launch_block; ++block) {
    const std::int64_t i = block * moment_block + threadIdx.x;
    const bool there = i < of.count;
    AdamWElement<float> next = {};
    if (there) {
      next = update_weight(constants, of, i,
                           first_moment_of(first_shares, moments.first[i], moments.first_scales[block]),
                           second_moment_of(second_shares, moments.second[i], moments.second_scales[block]));
    }
    std::uint32_t largest[] = {magnitude_bits(next.first_moment), magnitude_bits(next.second_moment)};
    reduce_block<Largest>(largest, shared);
    if (!there) continue;
    const float first_scale = std::bit_cast<float>(largest[0]),
                second_scale = std::bit_cast<float>(largest[1]);
    moments.first[i] = first_moment_code(first_boundaries, next.first_moment, first_scale);
    moments.second[i] = second_moment_code(second_boundaries, next.second_moment, second_scale);
    if (threadIdx.x == 0) {
      moments.first_scales[block] = first_scale;
      moments.second_scales[block] = second_scale;
    }
  }
}

template <class T, class Moments>
void adamw(std::span<const CompactUpdate<T, Moments>> updates, void* stream) {
  const auto launched = [](const CompactUpdate<T, Moments>& update) {
    return LaunchedCompactUpdate<T, Moments>{AdamWConstants<float>(update.settings, 1), update.operands,
                                             update.moments};
  };
  if constexpr (std::is_same_v<Moments, Bf16Moments>)
    launch_updates(bf16_moments_kernel<T>, compact_threads, compact_threads, updates, launched, stream);
  else
    launch_updates(eight_bit_moments_kernel<T>, compact_threads, blocks_of_a_launch_block * moment_block,
                   updates, launched, stream);
}

template void adamw(std::span<const CompactUpdate<float, Bf16Moments>>, void*);
template void adamw(std::span<const CompactUpdate<Bfloat16, Bf16Moments>>, void*);
template void adamw(std::span<const CompactUpdate<Float16, Bf16Moments>>, void*);
template void adamw(std::span<const CompactUpdate<float, EightBitMoments>>, void*);
template void adamw(std::span<const CompactUpdate<Bfloat16, EightBitMoments>>, void*);
template void adamw(std::span<const CompactUpdate<Float16, EightBitMoments>>, void*);

STOWAGE_CUDA_KERNEL(bf16_moments_kernel<float>);
STOWAGE_CUDA_KERNEL(bf16_moments_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(bf16_moments_kernel<Float16>);
STOWAGE_CUDA_KERNEL(eight_bit_moments_kernel<float>);
STOWAGE_CUDA_KERNEL(eight_bit_moments_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(eight_bit_moments_kernel<Float16>);

}  // namespace stowage::cuda
