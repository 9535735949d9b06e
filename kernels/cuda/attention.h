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
  std::int64_t width = 0;  // width of all query heads together
  bool causal = true;
  double dropout = 0;  // rate on the probabilities; the draw is [sample, head, row, column] of the stream
  RandomStream random = {};
  // [samples, sequence]: keys of positions that are 0 get no weight. Null: all positions are seen. A sample
  // of zeros alone gives rows of NaN.
  const std::int32_t* seen = nullptr;
  // The caller promises that in each sample of `seen` all seen positions come before the others.
  bool padded_at_end = false;
  // Heads of keys, and of values; 0: as many as of queries. Query head h reads key head h / group().
  std::int64_t key_heads = 0;
  std::int64_t window = 0;  // a query sees its own key and window - 1 keys before it; 0: all before it
  // [samples, sequence]: the index within the sample of the first token of a token's document. A query sees
  // no key of another document. Null: a sample is one document. Indices that fall or lie behind their token
  // give wrong results or rows of NaN.
  const std::int32_t* begins = nullptr;

  std::int64_t head_width() const { return width / heads; }
  // Query heads that share a key head.
  std::int64_t group() const { return key_heads > 0 ? heads / key_heads : 1; }
  std::int64_t key_width() const { return width / group(); }
  std::int64_t packed_width() const { return width + 2 * key_width(); }
};

inline constexpr std::int64_t widest_head = 256;
// Throws InvalidInput for wider heads.
void require_head_width(const AttentionShape& shape);

// qkv[N, packed width] holds queries, keys and values side by side, each split in heads.
// out[N, width] = dropout(softmax(q k^T / sqrt(head width))) v; log_sum_exp f32[samples, heads, sequence] of
// the scaled scores. Requires that a window and `begins` come with a causal mask and without `seen`.
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
// Adds the gradients of a key head's keys and values over its query heads in a fixed order.
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
