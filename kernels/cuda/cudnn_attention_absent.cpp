// For builds without cudnn-frontend's headers.
#include "kernels/cuda/cudnn_attention.h"

namespace stowage::cuda {

bool cudnn_attention(const AttentionShape&, const Bfloat16*, Bfloat16*, float*, void*) { return false; }

bool cudnn_attention_backward(const AttentionShape&, const AttentionGradient<Bfloat16>&, void*) {
  return false;
}

}  // namespace stowage::cuda
