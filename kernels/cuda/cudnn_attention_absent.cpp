// For builds without cudnn-frontend's headers.
#include "kernels/cuda/cudnn_attention.h"

namespace stowage::cuda {
namespace {

constexpr std::string_view absent =
    "this backend was built without cudnn-frontend's headers: run scripts/setup and build it again";

}  // namespace

std::string_view cudnn_attention(const AttentionShape&, const Bfloat16*, Bfloat16*, float*, void*) {
  return absent;
}

std::string_view cudnn_attention_backward(const AttentionShape&, const AttentionGradient<Bfloat16>&, void*) {
  return absent;
}

}  // namespace stowage::cuda
