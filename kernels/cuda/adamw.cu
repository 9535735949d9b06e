// Compiled with contraction off (-fmad=false): the host's AdamW must give the same bits.
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/pack.h"

namespace stowage::cuda {

inline constexpr int adamw_threads = 256;

// What one thread updates: moved as one word where the tensor is aligned.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};

template <class T>
__device__ Four<T> load_four(const T* from, std::int64_t left, bool aligned) {
  if (aligned && left >= 4) return *reinterpret_cast<const Four<T>*>(from);
  Four<T> four{};
  for (int k = 0; k < 4; ++k) {
    if (k < left) four.values[k] = from[k];
  }
  return four;
}

template <class T>
__device__ void store_four(T* to, std::int64_t left, bool aligned, const Four<T>& four) {
  if (aligned && left >= 4) {
    *reinterpret_cast<Four<T>*>(to) = four;
    return;
  }
  for (int k = 0; k < 4; ++k) {
    if (k < left) to[k] = four.values[k];
  }
}

// The f32 weights that are updated.
__device__ inline Four<float> master_weights(const AdamWOperands<float>& of, std::int64_t i, bool aligned) {
  return load_four(of.parameter + i, of.count - i, aligned);
}
__device__ inline Four<float> master_weights(const AdamWOperands<Bfloat16>& of, std::int64_t i,
                                             bool aligned) {
  const Four<Bfloat16> high = load_four(of.parameter + i, of.count - i, aligned);
  const Four<std::int16_t> low = load_four(of.low + i, of.count - i, aligned);
  Four<float> result;
  for (int k = 0; k < 4; ++k) result.values[k] = joined({high.values[k], low.values[k]});
  return result;
}

__device__ inline void store_weights(const AdamWOperands<float>& of, std::int64_t i, bool aligned,
                                     const Four<float>& weights) {
  store_four(of.new_parameter + i, of.count - i, aligned, weights);
}
__device__ inline void store_weights(const AdamWOperands<Bfloat16>& of, std::int64_t i, bool aligned,
                                     const Four<float>& weights) {
  Four<Bfloat16> high;
  Four<std::int16_t> low;
  for (int k = 0; k < 4; ++k) {
    const SplitWeight halves = split(weights.values[k]);
    high.values[k] = halves.weight;
    low.values[k] = halves.low;
  }
  store_four(of.new_parameter + i, of.count - i, aligned, high);
  store_four(of.new_low + i, of.count - i, aligned, low);
}

template <class T>
__global__ void adamw_kernel(AdamWConstants<float> constants, AdamWOperands<T> of, bool aligned) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (i >= of.count) return;
  const std::int64_t left = of.count - i;
  constants.scale = static_cast<float>(of.clip[1]);
  Four<float> weights = master_weights(of, i, aligned);
  Four<float> first = load_four(of.first_moment + i, left, aligned);
  Four<float> second = load_four(of.second_moment + i, left, aligned);
  const Four<T> gradient = load_four(of.gradient + i, left, aligned);
  for (int k = 0; k < 4; ++k) {
    const AdamWElement<float> next =
        adamw_update(constants, {weights.values[k], first.values[k], second.values[k]},
                     static_cast<float>(gradient.values[k]));
    weights.values[k] = next.parameter;
    first.values[k] = next.first_moment;
    second.values[k] = next.second_moment;
  }
  store_weights(of, i, aligned, weights);
  store_four(of.new_first_moment + i, left, aligned, first);
  store_four(of.new_second_moment + i, left, aligned, second);
}

template <class T>
void adamw(const AdamWSettings& settings, const AdamWOperands<T>& of, void* stream) {
  if (of.count == 0) return;
  bool aligned = true;
  for (const void* address :
       {static_cast<const void*>(of.parameter), static_cast<const void*>(of.gradient),
        static_cast<const void*>(of.first_moment), static_cast<const void*>(of.second_moment),
        static_cast<const void*>(of.low), static_cast<const void*>(of.new_parameter),
        static_cast<const void*>(of.new_first_moment), static_cast<const void*>(of.new_second_moment),
        static_cast<const void*>(of.new_low)}) {
    aligned = aligned && is_aligned(address);
  }
  launch(adamw_kernel<T>, "adamw", {{blocks_for(of.count, 4 * adamw_threads)}, adamw_threads}, stream,
         AdamWConstants<float>(settings, 1), of, aligned);
}

template void adamw(const AdamWSettings&, const AdamWOperands<float>&, void*);
template void adamw(const AdamWSettings&, const AdamWOperands<Bfloat16>&, void*);

STOWAGE_CUDA_KERNEL(adamw_kernel<float>);
STOWAGE_CUDA_KERNEL(adamw_kernel<Bfloat16>);

}  // namespace stowage::cuda
