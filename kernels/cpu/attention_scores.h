// The attention that each token received: the measure by which top_tokens chooses.
#pragma once

#include "kernels/cpu/attention.h"

namespace stowage::cpu {

// scores[samples * sequence]: the sum, over heads and queries, of the probability that each token has as a
// key, before dropout. Queries at padding do not count, and padding's own score is 0. A head's probabilities
// are added in the order of the queries, and the heads' sums in a tree of adjacent pairs, in which missing
// heads are 0. `log_sum_exp` is what `attention` wrote; `by_head` is scratch of its size. Requires a shape
// without a window and without `begins`.
template <class T>
void attention_scores(const AttentionShape& shape, const T* qkv, const Sum<T>* log_sum_exp, Sum<T>* scores,
                      Sum<T>* by_head);

}  // namespace stowage::cpu
