// This file is compiled with contraction off (-fmad=false): the host's AdamW must give the same bits.
#include <limits>

#include "kernels/cuda/joint_launch.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/pack.h"

namespace stowage::cuda {

inline constexpr int adamw_threads = 256;

// Eight elements of any type of 16 bits.
template <class Half>
__device__ void load_halves(const Half* from, std::int64_t left, bool aligned, Half (&to)[8]) {
  if (aligned && left >= 8) {
    const SixteenBytes eight = *reinterpret_cast<const SixteenBytes*>(from);
    for (int k = 0; k < 8; ++k)
      to[k] = std::bit_cast<Half>(static_cast<std::uint16_t>(eight.words[k / 2] >> (k % 2 == 0 ? 0U : 16U)));
    return;
  }
  for (int k = 0; k < 8; ++k) to[k] = k < left ? from[k] : Half{};
}

template <class Half>
__device__ void store_halves(Half* to, std::int64_t left, bool aligned, const Half (&from)[8]) {
  if (aligned && left >= 8) {
    SixteenBytes eight;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t low = std::bit_cast<std::uint16_t>(from[2 * i]);
      const std::uint32_t high = std::bit_cast<std::uint16_t>(from[2 * i + 1]);
      eight.words[i] = low | (high << 16U);
    }
    store_sixteen(to, eight);
    return;
  }
  for (int k = 0; k < 8; ++k) {
    if (k < left) to[k] = from[k];
  }
}

// The f32 weights that are updated.
__device__ inline void load_weights(const AdamWOperands<float>& of, std::int64_t i, bool aligned,
                                    float (&weights)[4]) {
  load_packs(of.parameter + i, of.count - i, aligned, weights);
}
__device__ inline void load_weights(const AdamWOperands<Bfloat16>& of, std::int64_t i, bool aligned,
                                    float (&weights)[8]) {
  Bfloat16 high[8];
  std::int16_t low[8];
  load_halves(of.parameter + i, of.count - i, aligned, high);
  load_halves(of.low + i, of.count - i, aligned, low);
  for (int k = 0; k < 8; ++k) weights[k] = joined({high[k], low[k]});
}

__device__ inline void load_weights(const AdamWOperands<Float16>& of, std::int64_t i, bool aligned,
                                    float (&weights)[8]) {
  Float16 half[8];
  load_halves(of.parameter + i, of.count - i, aligned, half);
  for (int k = 0; k < 8; ++k)
    weights[k] = joined(HalfSplitWeight{half[k], i + k < of.count ? of.low[i + k] : 0});
}

__device__ inline void store_weights(const AdamWOperands<float>& of, std::int64_t i, bool aligned,
                                     const float (&weights)[4]) {
  store_packs(of.new_parameter + i, of.count - i, aligned, weights);
}
__device__ inline void store_weights(const AdamWOperands<Bfloat16>& of, std::int64_t i, bool aligned,
                                     const float (&weights)[8]) {
  Bfloat16 high[8];
  std::int16_t low[8];
  for (int k = 0; k < 8; ++k) {
    const SplitWeight halves = split(weights[k]);
    high[k] = halves.weight;
    low[k] = halves.low;
  }
  store_halves(of.new_parameter + i, of.count - i, aligned, high);
  store_halves(of.new_low + i, of.count - i, aligned, low);
}

__device__ inline void store_weights(const AdamWOperands<Float16>& of, std::int64_t i, bool aligned,
                                     const float (&weights)[8]) {
  Float16 half[8];
  for (int k = 0; k < 8; ++k) {
    const HalfSplitWeight both = split_half(weights[k]);
    half[k] = both.weight;
    if (i + k < of.count) of.new_low[i + k] = both.low;
  }
  store_halves(of.new_parameter + i, of.count - i, aligned, half);
}

template <class T>
struct LaunchedUpdate {
  AdamWConstants<float> constants;
  AdamWOperands<T> operands;
  bool aligned;
};

template <class T>
__global__ void adamw_kernel(const __grid_constant__ JointUpdates<LaunchedUpdate<T>> all) {
  constexpr int size = pack_size<T>;
  const unsigned update = update_of_block(all);
  const AdamWOperands<T>& of = all.updates[update].operands;
  const bool aligned = all.updates[update].aligned;
  const std::int64_t block = blockIdx.x - all.first_block[update];
  const std::int64_t i = (block * blockDim.x + threadIdx.x) * size;
  if (i >= of.count) return;
  const std::int64_t left = of.count - i;
  AdamWConstants<float> constants = all.updates[update].constants;
  constants.scale = static_cast<float>(of.clip[1] / of.loss_scale);
  const bool changes = of.clip[0] < std::numeric_limits<double>::infinity();  // false for NaN
  float weights[size], first[size], second[size];
  load_weights(of, i, aligned, weights);
  load_packs(of.first_moment + i, left, aligned, first);
  load_packs(of.second_moment + i, left, aligned, second);
  const Pack<T> gradient = load_pack(of.gradient + i, left, aligned);
  for (int k = 0; k < size; ++k) {
    const AdamWElement<float> next =
        adamw_update(constants, {weights[k], first[k], second[k]}, gradient.values[k]);
    if (!changes) break;
    weights[k] = next.parameter;
    first[k] = next.first_moment;
    second[k] = next.second_moment;
  }
  store_weights(of, i, aligned, weights);
  store_packs(of.new_first_moment + i, left, aligned, first);
  store_packs(of.new_second_moment + i, left, aligned, second);
}

template <class T>
bool are_aligned(const AdamWOperands<T>& of) {
  bool aligned = true;
  for (const void* address :
       {static_cast<const void*>(of.parameter), static_cast<const void*>(of.gradient),
        static_cast<const void*>(of.first_moment), static_cast<const void*>(of.second_moment),
        static_cast<const void*>(of.low), static_cast<const void*>(of.new_parameter),
        static_cast<const void*>(of.new_first_moment), static_cast<const void*>(of.new_second_moment),
        static_cast<const void*>(of.new_low)}) {
    aligned = aligned && is_aligned(address);
  }
  return aligned;
}

template <class T>
void adamw(std::span<const WideUpdate<T>> updates, void* stream) {
  const auto launched = [](const WideUpdate<T>& update) {
    return LaunchedUpdate<T>{AdamWConstants<float>(update.settings, 1), update.operands,
                             are_aligned(update.operands)};
  };
  launch_updates(adamw_kernel<T>, adamw_threads, pack_size<T> * adamw_threads, updates, launched, stream);
}

template void adamw(std::span<const WideUpdate<float>>, void*);
template void adamw(std::span<const WideUpdate<Bfloat16>>, void*);
template void adamw(std::span<const WideUpdate<Float16>>, void*);

STOWAGE_CUDA_KERNEL(adamw_kernel<float>);
STOWAGE_CUDA_KERNEL(adamw_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(adamw_kernel<Float16>);

}  // namespace stowage::cuda
