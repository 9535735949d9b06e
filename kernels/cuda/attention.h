// Multi-head attention, forward and backward. T: float, Bfloat16 or Float16; scores, softmax and sums in f32.
// Stream order. Throws DeviceError, and InvalidInput for heads wider than 256 or where the lane's scratch is
// too small.
//
// There are two methods: cuDNN's fused attention (cudnn_attention.h) for bf16 and f16 without dropout, and
// without padding or with padding at the end, if cuDNN takes the shape; else our own (flash_attention.h). The
// method is chosen once for each shape and lane, from the shape, the card and the libraries alone. Both
// methods write the same bits every time. The environment variable STOWAGE_ATTENTION says which may be used:
//
// - auto, or unset: as above; why cuDNN does not compute a shape is printed to stderr, once for each shape.
// - cudnn: cuDNN alone. InvalidInput with the reason for a shape that it does not compute.
// - own: our own kernels alone. cuDNN is not opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/math/philox.h"
#include "stowage/cuda_device.h"

namespace stowage::cuda {

struct AttentionShape {
  std::int64_t samples = 0, heads = 1, sequence = 1;
  std::int64_t width = 0;  // width of all heads together
  bool causal = true;
  double dropout = 0;  // rate on the probabilities; the draw is [sample, head, row, column] of the stream
  RandomStream random = {};
  // [samples, sequence]: keys of positions that are 0 get no weight. Null: all positions are seen. A sample
  // of zeros alone gives rows of NaN.
  const std::int32_t* seen = nullptr;
  // The caller promises that in each sample of `seen` all seen positions come before the others.
  bool padded_at_end = false;

  std::int64_t head_width() const { return width / heads; }
};

inline constexpr std::int64_t widest_head = 256;

// qkv[N, 3 width] holds queries, keys and values side by side, each split in heads.
// out[N, width] = dropout(softmax(q k^T / sqrt(head width))) v; log_sum_exp f32[samples, heads, sequence] of
// the scaled scores.
template <class T>
void attention(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp, void* stream);

template <class T>
struct AttentionGradient {
  const T* qkv = nullptr;
  const T* out = nullptr;
  const float* log_sum_exp = nullptr;
  const T* dout = nullptr;
  T* dqkv = nullptr;
  void* workspace = nullptr;  // workspace for cuDNN, aligned to 256 bytes; may be null
  std::size_t workspace_bytes = 0;
};
template <class T>
void attention_backward(const AttentionShape& shape, const AttentionGradient<T>& of, void* stream);

// The method that may compute attention, and the one that did. Thread-safe.

enum class AttentionChoice : std::uint8_t { automatic, cudnn, own };

// Reads STOWAGE_ATTENTION. Throws InvalidInput for a value other than cudnn, own and auto.
AttentionChoice attention_choice();

enum class AttentionMethod : std::uint8_t { cudnn, own, plain };

void count_attention(AttentionMethod method);

// Handles that cuDNN does not compute the shape, for this reason. If the choice is automatic, the reason is
// kept, and printed to stderr once for each shape. If the choice is cuDNN alone, throws InvalidInput.
void refuse_cudnn(AttentionChoice choice, const AttentionShape& shape, bool backward,
                  std::string_view reason);

// As include/stowage/cuda_device.h says.
AttentionUse attention_use();

}  // namespace stowage::cuda
