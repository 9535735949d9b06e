#include "kernels/cpu/cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/cpu/clones.h"
#include "kernels/math/exponential.h"
#include "src/base/parallel_for.h"
#include "stowage/error.h"

namespace stowage::cpu {
namespace {

constexpr float no_logit = -3e38F;  // no block had the target's yet
constexpr std::int64_t elements_per_chunk = 16384;

std::int64_t rows_per_chunk(std::int64_t vocabulary) {
  return std::max<std::int64_t>(1, elements_per_chunk / vocabulary);
}

template <class T>
STOWAGE_HOST_DEVICE Sum<T> largest_of(std::int64_t count, const T* x) {
  Sum<T> largest = wide(x[0]);
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i) largest = wide(x[i]) > largest ? wide(x[i]) : largest;
  return largest;
}

// The largest of some logits, and the sum of exp(logit - largest).
template <class S>
struct Exponentials {
  S largest, sum;
  S log_of_sum() const { return largest + std::log(sum); }
};

template <class T>
STOWAGE_HOST_DEVICE Exponentials<Sum<T>> exponentials_of(std::int64_t count, const T* x) {
  const Sum<T> largest = largest_of(count, x);
  Sum<T> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += exponential(wide(x[i]) - largest);
  return {largest, sum};
}

template <class T>
STOWAGE_HOST_DEVICE void softmax_loop(std::int64_t count, Sum<T> log_sum_exp, Sum<T> scale, const T* x,
                                      T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = rounded<T>(exponential(wide(x[i]) - log_sum_exp) * scale);
}

template <class T>
struct Softmax {
  T log_sum_exp, scale;  // scale: factor from exponential to weight
};

// Replaces each x by exp(x - largest).
template <class T>
STOWAGE_HOST_DEVICE Softmax<T> exponentials_loop(std::int64_t count, T* x) {
  const T largest = largest_of(count, x);
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = exponential(x[i] - largest);
    sum += x[i];
  }
  return {largest + std::log(sum), 1 / sum};
}

template <class T>
STOWAGE_HOST_DEVICE void scale_loop(std::int64_t count, T scale, T* x) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) x[i] *= scale;
}

STOWAGE_CLONES Softmax<float> exponentials(std::int64_t count, float* x) {
  return exponentials_loop(count, x);
}
Softmax<double> exponentials(std::int64_t count, double* x) { return exponentials_loop(count, x); }

STOWAGE_CLONES void scale(std::int64_t count, float by, float* x) { scale_loop(count, by, x); }
void scale(std::int64_t count, double by, double* x) { scale_loop(count, by, x); }

STOWAGE_CLONES Exponentials<float> reduce(std::int64_t count, const float* x) {
  return exponentials_of(count, x);
}
STOWAGE_CLONES Exponentials<float> reduce(std::int64_t count, const Bfloat16* x) {
  return exponentials_of(count, x);
}
STOWAGE_CLONES Exponentials<float> reduce(std::int64_t count, const Float16* x) {
  return exponentials_of(count, x);
}
Exponentials<double> reduce(std::int64_t count, const double* x) { return exponentials_of(count, x); }

STOWAGE_CLONES void softmax(std::int64_t count, float log_sum_exp, float scale, const float* x, float* y) {
  softmax_loop(count, log_sum_exp, scale, x, y);
}
STOWAGE_CLONES void softmax(std::int64_t count, float log_sum_exp, float scale, const Bfloat16* x,
                            Bfloat16* y) {
  softmax_loop(count, log_sum_exp, scale, x, y);
}
STOWAGE_CLONES void softmax(std::int64_t count, float log_sum_exp, float scale, const Float16* x,
                            Float16* y) {
  softmax_loop(count, log_sum_exp, scale, x, y);
}
void softmax(std::int64_t count, double log_sum_exp, double scale, const double* x, double* y) {
  softmax_loop(count, log_sum_exp, scale, x, y);
}

template <class T>
T share_of(std::int64_t count, double loss_scale) {
  return static_cast<T>(count == 0 ? 0 : loss_scale / static_cast<double>(count));
}

// Writes the gradient of a row whose target counts; a negative target is in none of these columns. `to` may
// be the row.
template <class T>
void write_gradient(const Logits& shape, std::int64_t target, Sum<T> log_sum_exp, Sum<T> share, const T* row,
                    T* to) {
  const Sum<T> logit = target < 0 ? Sum<T>{0} : wide(row[target]);
  softmax(shape.vocabulary, log_sum_exp, share, row, to);
  std::fill(to + shape.vocabulary, to + shape.columns(), T{});
  if (target < 0) return;
  // In a narrow type the target's probability is computed anew: its stored value is rounded already, and the
  // difference would be rounded twice.
  to[target] = is_narrow<T> ? rounded<T>(exponential(logit - log_sum_exp) * share - share)
                            : rounded<T>(wide(to[target]) - share);
}

// Returns a row's loss and replaces the row by its gradient. A narrow row cannot hold exponentials meanwhile,
// so they are computed twice.
template <Narrow T>
double differentiate(const Logits& shape, std::int32_t target, float share, T* row) {
  if (target < 0) {
    std::fill(row, row + shape.columns(), T{});
    return 0;
  }
  const auto logit = static_cast<double>(wide(row[target]));
  const float log_sum_exp = reduce(shape.vocabulary, row).log_of_sum();
  write_gradient(shape, target, log_sum_exp, share, row, row);
  return static_cast<double>(log_sum_exp) - logit;
}

template <class T>
double differentiate(const Logits& shape, std::int32_t target, T share, T* row) {
  if (target < 0) {
    std::fill(row, row + shape.columns(), T{0});
    return 0;
  }
  const auto logit = static_cast<double>(row[target]);
  const Softmax<T> softmax = exponentials(shape.vocabulary, row);
  scale(shape.vocabulary, softmax.scale * share, row);
  std::fill(row + shape.vocabulary, row + shape.columns(), T{0});
  row[target] -= share;
  return static_cast<double>(softmax.log_sum_exp) - logit;
}

}  // namespace

std::int64_t counted_targets(std::int64_t rows, std::int64_t vocabulary, const std::int32_t* targets) {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] >= vocabulary) {
      throw InvalidInput("cross_entropy: target " + std::to_string(targets[row]) + " at position " +
                         std::to_string(row) + " is outside the vocabulary of " + std::to_string(vocabulary) +
                         "; give targets below it, or a negative one to be ignored");
    }
    if (targets[row] >= 0) ++count;
  }
  return count;
}

template <class T>
void cross_entropy(const Logits& shape, const T* logits, const std::int32_t* targets, double* loss,
                   Sum<T>* log_sum_exp, std::int64_t count) {
  const std::int64_t stride = shape.columns();
  const std::int64_t counted = counted_targets(shape.rows, shape.vocabulary, targets);
  if (count == of_the_rows) count = counted;
  parallel_for(shape.rows, rows_per_chunk(shape.vocabulary), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      log_sum_exp[row] = reduce(shape.vocabulary, logits + row * stride).log_of_sum();
  });
  double sum = 0;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    if (targets[row] < 0) continue;
    sum += static_cast<double>(log_sum_exp[row]) -
           static_cast<double>(wide(logits[row * stride + targets[row]]));
  }
  *loss = count == 0 ? 0 : sum / static_cast<double>(count);
}

template <class T>
void cross_entropy_backward(const Logits& shape, const T* logits, const std::int32_t* targets,
                            const Sum<T>* log_sum_exp, T* dlogits, std::int64_t count, double loss_scale) {
  const std::int64_t stride = shape.columns();
  const std::int64_t counted = counted_targets(shape.rows, shape.vocabulary, targets);
  if (count == of_the_rows) count = counted;
  const auto share = share_of<Sum<T>>(count, loss_scale);
  parallel_for(shape.rows, rows_per_chunk(shape.vocabulary), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* line = dlogits + row * stride;
      if (targets[row] < 0) {
        std::fill(line, line + stride, T{});
      } else {
        write_gradient(shape, targets[row], log_sum_exp[row], share, logits + row * stride, line);
      }
    }
  });
}

template <class T>
double cross_entropy_in_place(const Logits& shape, std::int64_t count, double sum,
                              const std::int32_t* targets, T* logits, double loss_scale) {
  constexpr std::int64_t block = 4096;
  std::array<double, block> losses;
  const auto share = share_of<Sum<T>>(count, loss_scale);
  for (std::int64_t first = 0; first < shape.rows; first += block) {
    const std::int64_t here = std::min(block, shape.rows - first);
    parallel_for(here, rows_per_chunk(shape.vocabulary), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = first + i;
        losses[static_cast<std::size_t>(i)] =
            differentiate(shape, targets[row], share, logits + row * shape.columns());
      }
    });
    for (std::int64_t i = 0; i < here; ++i) sum += losses[static_cast<std::size_t>(i)];
  }
  return sum;
}

std::int64_t LogitBlock::counted() const { return std::clamp<std::int64_t>(vocabulary - first, 0, columns); }

template <class T>
void fold_logits(const LogitBlock& block, const T* logits, const std::int32_t* targets, const Sum<T>* before,
                 Sum<T>* statistics) {
  const std::int64_t counted = block.counted(), rows = block.rows;
  parallel_for(rows, rows_per_chunk(block.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t target = targets[row] - block.first;
      const T* const line = logits + row * block.columns;
      Exponentials<Sum<T>> of{0, 1};
      Sum<T> logit = 0;
      if (targets[row] >= 0) {
        of = reduce(counted, line);
        logit = static_cast<Sum<T>>(no_logit);
        if (before != nullptr) {
          const Exponentials<Sum<T>> seen{before[row], before[rows + row]};
          const Sum<T> largest = std::max(seen.largest, of.largest);
          of = {largest,
                seen.sum * exponential(seen.largest - largest) + of.sum * exponential(of.largest - largest)};
          logit = before[2 * rows + row];
        }
        if (target >= 0 && target < counted) logit = wide(line[target]);
      }
      statistics[row] = of.largest;
      statistics[rows + row] = of.sum;
      statistics[2 * rows + row] = logit;
    }
  });
}

template <class S>
void loss_of_statistics(std::int64_t rows, const S* statistics, const std::int32_t* targets,
                        std::int64_t count, double* loss) {
  double sum = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0) continue;
    const Exponentials<S> of{statistics[row], statistics[rows + row]};
    const S logit = statistics[2 * rows + row];
    sum += logit == static_cast<S>(no_logit)
               ? std::numeric_limits<double>::quiet_NaN()
               : static_cast<double>(of.log_of_sum()) - static_cast<double>(logit);
  }
  *loss = count == 0 ? 0 : sum / static_cast<double>(count);
}

template <class S>
void factors_of_statistics(std::int64_t rows, const S* statistics, const std::int32_t* targets,
                           std::int64_t count, double loss_scale, S* factors) {
  const auto share = share_of<S>(count, loss_scale);
  for (std::int64_t row = 0; row < rows; ++row) {
    const Exponentials<S> of{statistics[row], statistics[rows + row]};
    factors[row] = of.log_of_sum();
    factors[rows + row] = factors[2 * rows + row] = targets[row] < 0 ? S{0} : share;
  }
}

template <class T>
void differentiate_logits(const LogitBlock& block, const std::int32_t* targets, const Sum<T>* factors,
                          T* logits) {
  const std::int64_t counted = block.counted(), rows = block.rows;
  parallel_for(rows, rows_per_chunk(block.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* const line = logits + row * block.columns;
      if (targets[row] < 0) {
        std::fill(line, line + block.columns, T{});
        continue;
      }
      const std::int64_t target = targets[row] - block.first;
      write_gradient({rows, counted, block.columns}, target < counted ? target : -1, factors[row],
                     factors[rows + row], line, line);
    }
  });
}

template void cross_entropy(const Logits&, const float*, const std::int32_t*, double*, float*, std::int64_t);
template void cross_entropy(const Logits&, const double*, const std::int32_t*, double*, double*,
                            std::int64_t);
template void cross_entropy_backward(const Logits&, const float*, const std::int32_t*, const float*, float*,
                                     std::int64_t, double);
template void cross_entropy_backward(const Logits&, const double*, const std::int32_t*, const double*,
                                     double*, std::int64_t, double);

template double cross_entropy_in_place(const Logits&, std::int64_t, double, const std::int32_t*, float*,
                                       double);
template double cross_entropy_in_place(const Logits&, std::int64_t, double, const std::int32_t*, double*,
                                       double);

template void cross_entropy(const Logits&, const Bfloat16*, const std::int32_t*, double*, float*,
                            std::int64_t);
template void cross_entropy_backward(const Logits&, const Bfloat16*, const std::int32_t*, const float*,
                                     Bfloat16*, std::int64_t, double);
template double cross_entropy_in_place(const Logits&, std::int64_t, double, const std::int32_t*, Bfloat16*,
                                       double);
template void cross_entropy(const Logits&, const Float16*, const std::int32_t*, double*, float*,
                            std::int64_t);
template void cross_entropy_backward(const Logits&, const Float16*, const std::int32_t*, const float*,
                                     Float16*, std::int64_t, double);
template double cross_entropy_in_place(const Logits&, std::int64_t, double, const std::int32_t*, Float16*,
                                       double);

template void fold_logits(const LogitBlock&, const float*, const std::int32_t*, const float*, float*);
template void differentiate_logits(const LogitBlock&, const std::int32_t*, const float*, float*);
template void fold_logits(const LogitBlock&, const double*, const std::int32_t*, const double*, double*);
template void differentiate_logits(const LogitBlock&, const std::int32_t*, const double*, double*);
template void fold_logits(const LogitBlock&, const Bfloat16*, const std::int32_t*, const float*, float*);
template void differentiate_logits(const LogitBlock&, const std::int32_t*, const float*, Bfloat16*);
template void fold_logits(const LogitBlock&, const Float16*, const std::int32_t*, const float*, float*);
template void differentiate_logits(const LogitBlock&, const std::int32_t*, const float*, Float16*);
template void loss_of_statistics(std::int64_t, const float*, const std::int32_t*, std::int64_t, double*);
template void factors_of_statistics(std::int64_t, const float*, const std::int32_t*, std::int64_t, double,
                                    float*);
template void loss_of_statistics(std::int64_t, const double*, const std::int32_t*, std::int64_t, double*);
template void factors_of_statistics(std::int64_t, const double*, const std::int32_t*, std::int64_t, double,
                                    double*);

}  // namespace stowage::cpu
