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

// Logits that exist in blocks of columns, block by block. A row's statistics [3,rows] are the largest of its
// logits so far, the sum of exp(logit - largest), and its target's logit, -3e38 if no block had that; rows
// without a target have 0, 1, 0.

struct LogitBlock {
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // columns of this block, from column `first` of all logits on
  std::int64_t first = 0;
  std::int64_t vocabulary = 0;  // number of all columns that count, the first ones

  std::int64_t counted() const;  // of this block's columns
};

// Adds a block's logits to the statistics `before`, or begins them where that is null. `statistics` may be
// `before`. Targets may be any.
template <class T>
void fold_logits(const LogitBlock& block, const T* logits, const std::int32_t* targets, const Sum<T>* before,
                 Sum<T>* statistics);

// The rows' part of the loss, as cross_entropy's, from the statistics of all blocks. S: float or double.
template <class S>
void loss_of_statistics(std::int64_t rows, const S* statistics, const std::int32_t* targets,
                        std::int64_t count, double* loss);

// factors [3,rows]: log_sum_exp; then the factor loss_scale / count of exp(logit - log_sum_exp) and of the
// target's 1 in a logit's gradient, 0 in rows without a target.
template <class S>
void factors_of_statistics(std::int64_t rows, const S* statistics, const std::int32_t* targets,
                           std::int64_t count, double loss_scale, S* factors);

// Replaces a block's logits by their gradients, 0 in padding.
template <class T>
void differentiate_logits(const LogitBlock& block, const std::int32_t* targets, const Sum<T>* factors,
                          T* logits);

}  // namespace stowage::cpu
