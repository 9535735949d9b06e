// The attention that each token received. T: float, Bfloat16 or Float16; scores, probabilities and sums in
// f32. Tensor cores multiply bf16 and f16 (fragments.h), plain arithmetic f32. Writes the same bits every
// time. Stream order, without scratch. Throws DeviceError, and InvalidInput for heads wider than 256.
#pragma once

#include "kernels/cuda/attention.h"

namespace stowage::cuda {

// scores[samples * sequence]: the sum, over heads and queries, of the probability that each token has as a
// key, before dropout. Queries at padding do not count, and padding's own score is 0. The heads' sums are
// added in a tree of adjacent pairs, in which missing heads are 0. `log_sum_exp` is what `attention` wrote;
// `by_head` is a workspace of its size. Requires a shape without a window and without `begins`.
template <class T>
void attention_scores(const AttentionShape& shape, const T* qkv, const float* log_sum_exp, float* scores,
                      float* by_head, void* stream);

// Computes each head's sums, of a head's width that `attention_scores` has checked. T: Bfloat16 or Float16.
template <class T>
void tensor_key_sums(const AttentionShape& shape, const T* qkv, const float* log_sum_exp, float* by_head,
                     void* stream);

}  // namespace stowage::cuda
