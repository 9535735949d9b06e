// Attention by cuDNN's fused kernels, for bf16 and f16 (T).
//
// Both functions enqueue the work and return an empty text, or enqueue nothing and return why cuDNN does not
// compute the shape; the text lives as long as the lane. Reasons: dropout (the random numbers are ours),
// documents, padding that may stand anywhere, rows of heads that are not aligned to 16 bytes, no cuDNN
// (cudnn_graph.h says where it is looked for), a build without cudnn-frontend, or cuDNN's own refusal. The
// answer for a shape and lane is found once and kept in LaneResources::attention, with the graph; it does not
// depend on addresses, which count as aligned to 16 bytes.
//
// Forward takes its workspace from the lane's scratch (256 bytes on Hopper), backward from `of.workspace`.
// Backward runs cuDNN's deterministic algorithm, which on Hopper wants samples * heads * (2 sequence^2 + 4
// sequence) bytes (sequences rounded up to 64 and 128), and for grouped queries 4 * sequence * head width
// more for each head. With less, it runs in slices of samples, or of one sample's groups of query heads, as
// large as fit. A slice has whole groups, since cuDNN overwrites the gradients of the keys and values that a
// group shares. cuDNN calls log_sum_exp the statistics: natural logarithms, f32 [samples, heads, sequence,
// 1]; both methods write and read the same values.
//
// Padding at the end is a number of keys for each sample, counted on the device (count_lengths) at the front
// of the workspace. Queries are not padded, so padded rows of `out` and of the queries' gradient are as
// attention.h says; zeros overwrite cuDNN's values in padded rows of the keys' and values' gradients.
//
// Stream order. Throws DeviceError when a graph that was taken fails to run.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cuda/attention.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

namespace stowage::cuda {

template <class T>
[[nodiscard]] std::string_view cudnn_attention(const AttentionShape& shape, const T* qkv, T* out,
                                               float* log_sum_exp, void* stream);
template <class T>
[[nodiscard]] std::string_view cudnn_attention_backward(const AttentionShape& shape,
                                                        const AttentionGradient<T>& of, void* stream);

// Padding at the end of samples. Stream order. Throws DeviceError.

struct PaddedSamples {
  std::int64_t samples = 0, sequence = 1;
};

// all[samples] = sequence; seen_keys[samples] = how many of the sample's `seen` [sequence] are not 0.
void count_lengths(const PaddedSamples& shape, const std::int32_t* seen, std::int32_t* all,
                   std::int32_t* seen_keys, void* stream);

// Zeroes the gradients of keys and values at positions that are not seen; dqkv[N, packed width].
template <class T>
void clear_padding(const AttentionShape& shape, T* dqkv, void* stream);

}  // namespace stowage::cuda
