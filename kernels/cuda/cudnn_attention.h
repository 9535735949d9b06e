// Attention by cuDNN's fused kernels (version 9 and later), built through cudnn-frontend. cuDNN is opened
// when it is first wanted: libcudnn.so.9, or the file that the environment variable STOWAGE_CUDNN names.
// Where it is not there, where STOWAGE_CUDNN=off, or where the backend was built without cudnn-frontend,
// every shape is refused.
//
// Both return false, and enqueue nothing, for a shape that cuDNN does not take: with dropout, on a card or
// in a version without the kernel, or when the kernel wants more workspace than there is. The answer for a
// shape and lane is found once and kept in LaneResources::attention, with the graph; it does not depend on
// addresses, which count as aligned to 16 bytes (rows of heads that are not are refused).
//
// Forward takes its workspace from the lane's scratch (256 bytes on Hopper), backward from `of.workspace`.
// Backward runs cuDNN's deterministic algorithm, which on Hopper wants samples * heads * (2 sequence^2 +
// 4 sequence) bytes (sequences rounded up to 64 and 128): where there is less, it runs in slices of
// samples, or of one sample's heads, as large as fit. log_sum_exp is what cuDNN calls the statistics: natural
// logarithms, f32 [samples, heads, sequence, 1]; both methods write and read the same ones. Stream order.
// Throws DeviceError when a graph that was taken fails to run.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/math/bfloat16.h"

namespace stowage::cuda {

bool cudnn_attention(const AttentionShape& shape, const Bfloat16* qkv, Bfloat16* out, float* log_sum_exp,
                     void* stream);
bool cudnn_attention_backward(const AttentionShape& shape, const AttentionGradient<Bfloat16>& of,
                              void* stream);

}  // namespace stowage::cuda
