#include "kernels/cuda/attention.h"

#include <fmt/core.h>

#include <string_view>
#include <type_traits>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "stowage/error.h"

namespace stowage::cuda {

void require_head_width(const AttentionShape& shape) {
  if (shape.head_width() <= widest_head) return;
  throw InvalidInput(
      fmt::format("attention: heads of {} elements; the CUDA kernels take up to {}: use more heads",
                  shape.head_width(), widest_head));
}

namespace {

// Calls `cudnn`, which enqueues the work or returns why it does not; then `own` enqueues it.
template <class Cudnn, class Own>
void in_half(const AttentionShape& shape, bool backward, Cudnn cudnn, Own own) {
  require_head_width(shape);
  if (const AttentionChoice choice = attention_choice(); choice != AttentionChoice::own) {
    const std::string_view refusal = cudnn();
    if (refusal.empty()) return count_attention(AttentionMethod::cudnn);
    refuse_cudnn(choice, shape, backward, refusal);
  }
  own();
  count_attention(AttentionMethod::own);
}

// There is no choice for f32: cuDNN has no kernel for it.
template <class Own>
void in_f32(const AttentionShape& shape, Own own) {
  require_head_width(shape);
  own();
  count_attention(AttentionMethod::plain);
}

}  // namespace

template <class T>
void attention(const AttentionShape& shape, const T* qkv, T* out, float* log_sum_exp, void* stream) {
  const auto own = [&] { flash_attention(shape, qkv, out, log_sum_exp, stream); };
  if constexpr (std::is_same_v<T, float>)
    in_f32(shape, own);
  else
    in_half(
        shape, false, [&] { return cudnn_attention(shape, qkv, out, log_sum_exp, stream); }, own);
}

template <class T>
void attention_backward(const AttentionShape& shape, const AttentionGradient<T>& of, void* stream) {
  const auto own = [&] { flash_attention_backward(shape, of, stream); };
  if constexpr (std::is_same_v<T, float>)
    in_f32(shape, own);
  else
    in_half(
        shape, true, [&] { return cudnn_attention_backward(shape, of, stream); }, own);
}

template void attention(const AttentionShape&, const float*, float*, float*, void*);
template void attention(const AttentionShape&, const Bfloat16*, Bfloat16*, float*, void*);
template void attention_backward(const AttentionShape&, const AttentionGradient<float>&, void*);
template void attention_backward(const AttentionShape&, const AttentionGradient<Bfloat16>&, void*);
template void attention(const AttentionShape&, const Float16*, Float16*, float*, void*);
template void attention_backward(const AttentionShape&, const AttentionGradient<Float16>&, void*);

}  // namespace stowage::cuda
