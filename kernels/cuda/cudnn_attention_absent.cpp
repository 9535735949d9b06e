// Stand-in for builds without cudnn-frontend's headers.
#include "kernels/cuda/cudnn_attention.h"

namespace stowage::cuda {
namespace {

constexpr std::string_view absent =
    "this backend was built without cudnn-frontend's headers: run scripts/setup and build it again";

}  // namespace

template <class T>
std::string_view cudnn_attention(const AttentionShape&, const T*, T*, float*, void*) {
  return absent;
}

template <class T>
std::string_view cudnn_attention_backward(const AttentionShape&, const AttentionGradient<T>&, void*) {
  return absent;
}

template std::string_view cudnn_attention(const AttentionShape&, const Bfloat16*, Bfloat16*, float*, void*);
template std::string_view cudnn_attention_backward(const AttentionShape&, const AttentionGradient<Bfloat16>&,
                                                   void*);
template std::string_view cudnn_attention(const AttentionShape&, const Float16*, Float16*, float*, void*);
template std::string_view cudnn_attention_backward(const AttentionShape&, const AttentionGradient<Float16>&,
                                                   void*);

}  // namespace stowage::cuda
