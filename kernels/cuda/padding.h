// Padding at the end of samples, for attention by a library that takes a number of keys for each sample.
// Stream order. Throws DeviceError.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

namespace stowage::cuda {

struct PaddedSamples {
  std::int64_t samples = 0, sequence = 1;
};

// all[samples] = sequence; seen_keys[samples] = how many of the sample's `seen` [sequence] are not 0.
void count_lengths(const PaddedSamples& shape, const std::int32_t* seen, std::int32_t* all,
                   std::int32_t* seen_keys, void* stream);

// Zeros for the gradients of keys and values at positions that are not seen; dqkv[N, 3 width].
template <class T>
void clear_padding(const AttentionShape& shape, T* dqkv, void* stream);

}  // namespace stowage::cuda
