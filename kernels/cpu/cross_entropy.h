// Softmax cross entropy, averaged over the targets that are not negative (0 if all are).
#pragma once

#include <cstdint>

#include "kernels/cpu/storage.h"

namespace stowage::cpu {

inline constexpr std::int64_t of_the_rows = -1;

struct Logits {
  std::int64_t rows = 0;
  std::int64_t vocabulary = 0;  // number of columns that count, the first of each row
  std::int64_t stored = 0;      // columns of a row, padding included; 0: the vocabulary

  std::int64_t columns() const { return stored == 0 ? vocabulary : stored; }
};

// Writes the sum of log_sum_exp[n] - logits[n, target[n]], in f64 and in order of n, over `count`: the
// targets that count in the batch, of which these rows may be a part. Throws InvalidInput for a target beyond
// the vocabulary.
template <class T>
void cross_entropy(const Logits& shape, const T* logits, const std::int32_t* targets, double* loss,
                   Sum<T>* log_sum_exp, std::int64_t count = of_the_rows);

// dlogits = (exp(logits - log_sum_exp) - [column is the target]) * loss_scale / count, 0 in padding
template <class T>
void cross_entropy_backward(const Logits& shape, const T* logits, const std::int32_t* targets,
                            const Sum<T>* log_sum_exp, T* dlogits, std::int64_t count = of_the_rows,
                            double loss_scale = 1);

// Returns the number of targets that are not negative. Throws as above.
std::int64_t counted_targets(std::int64_t rows, std::int64_t vocabulary, const std::int32_t* targets);

// Loss and gradient at once, for some rows of a batch in which `count` targets count: replaces logits by
// dlogits and returns `sum` plus the rows' losses, added in order of n.
template <class T>
double cross_entropy_in_place(const Logits& shape, std::int64_t count, double sum,
                              const std::int32_t* targets, T* logits, double loss_scale = 1);

}  // namespace stowage::cpu
