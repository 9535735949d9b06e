#include "kernels/cuda/cudnn_attention.h"

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace stowage::cuda {

inline constexpr int padding_threads = 256;

// A block counts one sample.
__global__ void count_lengths_kernel(std::int64_t sequence, const std::int32_t* seen, std::int32_t* all,
                                     std::int32_t* seen_keys) {
  __shared__ std::int32_t parts[padding_threads / warp_size];
  const std::int32_t* const sample = seen + blockIdx.x * sequence;
  std::int32_t count = 0;
  for (std::int64_t i = threadIdx.x; i < sequence; i += blockDim.x) count += sample[i] != 0 ? 1 : 0;
  count = reduce_block<Sum>(count, parts);
  if (threadIdx.x != 0) return;
  all[blockIdx.x] = static_cast<std::int32_t>(sequence);
  seen_keys[blockIdx.x] = count;
}

// A block clears one token's keys and values, which lie behind its queries.
template <class T>
__global__ void clear_padding_kernel(std::int64_t width, std::int64_t packed_width, const std::int32_t* seen,
                                     T* dqkv) {
  if (seen[blockIdx.x] != 0) return;
  T* const row = dqkv + blockIdx.x * packed_width;
  for (std::int64_t i = width + threadIdx.x; i < packed_width; i += blockDim.x) row[i] = static_cast<T>(0.0F);
}

void count_lengths(const PaddedSamples& shape, const std::int32_t* seen, std::int32_t* all,
                   std::int32_t* seen_keys, void* stream) {
  launch(count_lengths_kernel, "attention", {{shape.samples}, padding_threads}, stream, shape.sequence, seen,
         all, seen_keys);
}

template <class T>
void clear_padding(const AttentionShape& shape, T* dqkv, void* stream) {
  launch(clear_padding_kernel<T>, "attention_backward", {{shape.samples * shape.sequence}, padding_threads},
         stream, shape.width, shape.packed_width(), shape.seen, dqkv);
}

template void clear_padding(const AttentionShape&, Bfloat16*, void*);
template void clear_padding(const AttentionShape&, Float16*, void*);

STOWAGE_CUDA_KERNEL(count_lengths_kernel);
STOWAGE_CUDA_KERNEL(clear_padding_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(clear_padding_kernel<Float16>);

}  // namespace stowage::cuda
