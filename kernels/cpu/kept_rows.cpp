#include "kernels/cpu/kept_rows.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "kernels/cpu/storage.h"
#include "kernels/math/score_order.h"
#include "src/base/parallel_for.h"
#include "stowage/error.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t rows_per_chunk = 64;

void check_rows(const KeptRows& shape, const std::int32_t* rows) {
  for (std::int64_t i = 0; i < shape.kept; ++i) {
    const std::int64_t least = i > 0 ? std::int64_t{rows[i - 1]} + 1 : 0;
    if (rows[i] >= least && rows[i] < shape.tokens) continue;
    throw InvalidInput("kept rows: row " + std::to_string(rows[i]) + " at position " + std::to_string(i) +
                       "; give rising rows, here from " + std::to_string(least) + " to " +
                       std::to_string(shape.tokens - 1));
  }
}

// Calls body(row, index) for each row of the matrix; `index`: its place in `rows`, -1 if it is not kept.
template <class Body>
void for_rows(const KeptRows& shape, const std::int32_t* rows, const Body& body) {
  parallel_for(shape.tokens, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    const std::int32_t* const last = rows + shape.kept;
    const std::int32_t* next = std::lower_bound(rows, last, begin);
    for (std::int64_t row = begin; row < end; ++row) {
      const bool kept = next != last && *next == row;
      body(row, kept ? next - rows : -1);
      if (kept) ++next;
    }
  });
}

template <class T>
void sum_of_rows(std::int64_t width, const T* a, const T* b, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) y[i] = rounded<T>(wide(a[i]) + wide(b[i]));
}

template <class A>
void top_of_sample(const TopTokensShape& shape, std::int64_t sample, const A* all_scores,
                   std::int32_t* rows) {
  const std::int64_t first = sample * shape.sequence;
  const auto order = [&](std::int32_t token) {
    return score_order(all_scores[token], shape.seen == nullptr || shape.seen[token] != 0);
  };
  std::int32_t* const tokens = thread_scratch<std::int32_t>(shape.sequence);
  std::iota(tokens, tokens + shape.sequence, static_cast<std::int32_t>(first));
  const auto comes_first = [&](std::int32_t a, std::int32_t b) {
    return order(a) != order(b) ? order(a) > order(b) : a < b;
  };
  std::nth_element(tokens, tokens + shape.keep - 1, tokens + shape.sequence, comes_first);
  std::sort(tokens, tokens + shape.keep);
  std::copy_n(tokens, shape.keep, rows + sample * shape.keep);
}

}  // namespace

template <class A>
void top_tokens(const TopTokensShape& shape, const A* scores, std::int32_t* rows) {
  parallel_for(shape.samples, 1,
               [&](std::int64_t sample, std::int64_t) { top_of_sample(shape, sample, scores, rows); });
}

template <class T>
void take_rows(const KeptRows& shape, const T* x, const std::int32_t* rows, T* y) {
  check_rows(shape, rows);
  parallel_for(shape.kept, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::copy_n(x + rows[i] * shape.width, shape.width, y + i * shape.width);
  });
}

template <class T>
void take_rows_backward(const KeptRows& shape, const T* dy, const std::int32_t* rows, T* dx) {
  check_rows(shape, rows);
  for_rows(shape, rows, [&](std::int64_t row, std::int64_t index) {
    T* const to = dx + row * shape.width;
    if (index < 0)
      std::fill_n(to, shape.width, T{});
    else
      std::copy_n(dy + index * shape.width, shape.width, to);
  });
}

template <class T>
void add_rows(const KeptRows& shape, const T* x, const T* y, const std::int32_t* rows, T* to) {
  check_rows(shape, rows);
  const std::int64_t width = shape.width;
  for_rows(shape, rows, [&](std::int64_t row, std::int64_t index) {
    if (index >= 0)
      sum_of_rows(width, x + row * width, y + index * width, to + row * width);
    else if (to != x)
      std::copy_n(x + row * width, width, to + row * width);
  });
}

template void top_tokens(const TopTokensShape&, const float*, std::int32_t*);
template void top_tokens(const TopTokensShape&, const double*, std::int32_t*);
template void take_rows(const KeptRows&, const float*, const std::int32_t*, float*);
template void take_rows(const KeptRows&, const double*, const std::int32_t*, double*);
template void take_rows(const KeptRows&, const Bfloat16*, const std::int32_t*, Bfloat16*);
template void take_rows(const KeptRows&, const Float16*, const std::int32_t*, Float16*);
template void take_rows_backward(const KeptRows&, const float*, const std::int32_t*, float*);
template void take_rows_backward(const KeptRows&, const double*, const std::int32_t*, double*);
template void take_rows_backward(const KeptRows&, const Bfloat16*, const std::int32_t*, Bfloat16*);
template void take_rows_backward(const KeptRows&, const Float16*, const std::int32_t*, Float16*);
template void add_rows(const KeptRows&, const float*, const float*, const std::int32_t*, float*);
template void add_rows(const KeptRows&, const double*, const double*, const std::int32_t*, double*);
template void add_rows(const KeptRows&, const Bfloat16*, const Bfloat16*, const std::int32_t*, Bfloat16*);
template void add_rows(const KeptRows&, const Float16*, const Float16*, const std::int32_t*, Float16*);

}  // namespace stowage::cpu
