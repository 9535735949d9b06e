// Softmax cross entropy, averaged over the targets that are not negative (0 if all are).
#pragma once

#include <cstdint>

namespace stowage::cpu {

// Writes the mean of log_sum_exp[n] - logits[n, target[n]], summed in f64 and in order of n.
// Throws InvalidInput for a target beyond the vocabulary.
template <class T>
void cross_entropy(std::int64_t rows, std::int64_t vocabulary, const T* logits, const std::int32_t* targets,
                   double* loss, T* log_sum_exp);

// dlogits = (exp(logits - log_sum_exp) - [column is the target]) / targets that count
template <class T>
void cross_entropy_backward(std::int64_t rows, std::int64_t vocabulary, const T* logits,
                            const std::int32_t* targets, const T* log_sum_exp, T* dlogits);

}  // namespace stowage::cpu
