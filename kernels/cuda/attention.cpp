#include "kernels/cuda/attention.h"

#include <fmt/core.h>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/math/bfloat16.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

void require_width(const AttentionShape& shape) {
  if (shape.head_width() <= widest_head) return;
  throw InvalidInput(
      fmt::format("attention: heads of {} elements; the CUDA kernels take up to {}: use more heads",
                  shape.head_width(), widest_head));
}

bool by_cudnn(const AttentionShape&, const float*, float*, float*, void*) { return false; }
bool by_cudnn(const AttentionShape& shape, const Bfloat16* qkv, Bfloat16* out, float* log_sum_exp,
              void* stream) {
  return shape.seen == nullptr && cudnn_attention(shape, qkv, out, log_sum_exp, stream);
}

bool by_cudnn(const AttentionShape&, const AttentionGradient<float>&, void*) { return false; }
bool by_cudnn(const AttentionShape& shape, const AttentionGradient<Bfloat16>& of, void* stream) {
  return shape.seen == nullptr && cudnn_attention_backward(shape, of, stream);
}

}  // namespace

template <class T>
void attention(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp, void* stream) {
  require_width(shape);
  if (!by_cudnn(shape, qkv, out, log_sum_exp, stream)) flash_attention(shape, qkv, out, log_sum_exp, stream);
}

template <class T>
void attention_backward(const AttentionShape& shape, const AttentionGradient<T>& of, void* stream) {
  require_width(shape);
  if (!by_cudnn(shape, of, stream)) flash_attention_backward(shape, of, stream);
}

template void attention(const AttentionShape&, const float*, float*, float*, void*);
template void attention(const AttentionShape&, const Bfloat16*, Bfloat16*, float*, void*);
template void attention_backward(const AttentionShape&, const AttentionGradient<float>&, void*);
template void attention_backward(const AttentionShape&, const AttentionGradient<Bfloat16>&, void*);

}  // namespace stowage::cuda
