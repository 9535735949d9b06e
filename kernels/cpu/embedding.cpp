#include "kernels/cpu/embedding.h"

#include <algorithm>
#include <optional>
#include <string>

#include "kernels/cpu/storage.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "src/base/parallel_for.h"
#include "stowage/error.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t rows_per_chunk = 64;
constexpr std::int64_t columns_per_task = 64;
constexpr std::int64_t block = 512;  // elements of a row, or rows of the table, summed at a time

void check_tokens(const EmbeddingShape& shape, const std::int32_t* tokens) {
  const std::int64_t rows = shape.all_rows == 0 ? shape.vocabulary : shape.all_rows;
  const std::int32_t* end = tokens + shape.tokens;
  const std::int32_t* bad =
      std::find_if(tokens, end, [&](std::int32_t token) { return token < 0 || token >= rows; });
  if (bad == end) return;
  throw InvalidInput("embedding: token " + std::to_string(*bad) + " at position " +
                     std::to_string(bad - tokens) + " is outside the table of " + std::to_string(rows) +
                     " rows; give tokens from 0 to " + std::to_string(rows - 1));
}

// Returns the token's row in the table, if it has one.
std::optional<std::int64_t> row_of(const EmbeddingShape& shape, std::int32_t token) {
  const std::int64_t row = token - shape.first_row;
  return row >= 0 && row < shape.vocabulary ? std::optional(row) : std::nullopt;
}

template <class T>
void add_row(std::int64_t width, const T* row, Sum<T>* sum) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) sum[i] += wide(row[i]);
}

template <class T>
void sum_of_rows(std::int64_t width, const T* a, const T* b, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) y[i] = rounded<T>(wide(a[i]) + wide(b[i]));
}

// Computes some columns of the table's gradient, summed in T in place.
template <class T>
void sum_in_place(const EmbeddingShape& shape, const std::int32_t* tokens, std::int64_t columns, const T* dy,
                  T* dtable) {
  const std::int64_t stride = shape.width;
  for (std::int64_t row = 0; row < shape.vocabulary; ++row)
    std::fill(dtable + row * stride, dtable + row * stride + columns, T{0});
  for (std::int64_t n = 0; n < shape.tokens; ++n)
    if (const auto row = row_of(shape, tokens[n])) add_row(columns, dy + n * stride, dtable + *row * stride);
}

// Computes the table's gradient for a narrow T: sums some rows of the table at a time, each over all tokens.
template <class T>
void sum_in_blocks(const EmbeddingShape& shape, const std::int32_t* tokens, std::int64_t columns, const T* dy,
                   T* dtable) {
  const std::int64_t stride = shape.width;
  Sum<T> sums[block * columns_per_task];
  for (std::int64_t first = 0; first < shape.vocabulary; first += block) {
    const std::int64_t rows = std::min(block, shape.vocabulary - first);
    std::fill(sums, sums + rows * columns_per_task, Sum<T>{0});
    for (std::int64_t n = 0; n < shape.tokens; ++n) {
      const std::int64_t row = tokens[n] - shape.first_row - first;
      if (row >= 0 && row < rows) add_row(columns, dy + n * stride, sums + row * columns_per_task);
    }
    for (std::int64_t row = 0; row < rows; ++row)
      store(columns, sums + row * columns_per_task, dtable + (first + row) * stride);
  }
}

}  // namespace

template <class T>
void embedding(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* positions,
               T* y) {
  check_tokens(shape, tokens);
  const std::int64_t width = shape.width;
  parallel_for(shape.tokens, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const T* row = table + tokens[n] * width;
      if (positions == nullptr) {
        std::copy(row, row + width, y + n * width);
      } else {
        sum_of_rows(width, row, positions + n % shape.sequence * width, y + n * width);
      }
    }
  });
}

template <class T>
void embedding_rows(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* before,
                    T* y) {
  check_tokens(shape, tokens);
  const std::int64_t width = shape.width;
  parallel_for(shape.tokens, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      T* const to = y + n * width;
      if (const auto row = row_of(shape, tokens[n]))
        std::copy_n(table + *row * width, width, to);
      else if (before == nullptr)
        std::fill_n(to, width, T{});
      else if (before != y)
        std::copy_n(before + n * width, width, to);
    }
  });
}

template <class T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* dy, T* dtable) {
  check_tokens(shape, tokens);
  parallel_for(shape.width, columns_per_task, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (is_narrow<T>) {
      sum_in_blocks(shape, tokens, end - begin, dy + begin, dtable + begin);
    } else {
      sum_in_place(shape, tokens, end - begin, dy + begin, dtable + begin);
    }
  });
}

template <class T>
void position_backward(const EmbeddingShape& shape, const T* dy, T* dpositions) {
  const std::int64_t width = shape.width;
  parallel_for(shape.sequence, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      for (std::int64_t at = 0; at < width; at += block) {
        const std::int64_t length = std::min(block, width - at);
        Sum<T> buffer[block];
        Sum<T>* const sum = target(dpositions + s * width + at, buffer);
        std::fill(sum, sum + length, Sum<T>{0});
        for (std::int64_t n = s; n < shape.tokens; n += shape.sequence)
          add_row(length, dy + n * width + at, sum);
        store(length, sum, dpositions + s * width + at);
      }
    }
  });
}

template void embedding(const EmbeddingShape&, const std::int32_t*, const float*, const float*, float*);
template void embedding(const EmbeddingShape&, const std::int32_t*, const double*, const double*, double*);
template void embedding_rows(const EmbeddingShape&, const std::int32_t*, const float*, const float*, float*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const float*, float*);
template void embedding_rows(const EmbeddingShape&, const std::int32_t*, const double*, const double*,
                             double*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const double*, double*);
template void position_backward(const EmbeddingShape&, const float*, float*);
template void position_backward(const EmbeddingShape&, const double*, double*);
template void embedding(const EmbeddingShape&, const std::int32_t*, const Bfloat16*, const Bfloat16*,
                        Bfloat16*);
template void embedding_rows(const EmbeddingShape&, const std::int32_t*, const Bfloat16*, const Bfloat16*,
                             Bfloat16*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const Bfloat16*, Bfloat16*);
template void position_backward(const EmbeddingShape&, const Bfloat16*, Bfloat16*);
template void embedding(const EmbeddingShape&, const std::int32_t*, const Float16*, const Float16*, Float16*);
template void embedding_rows(const EmbeddingShape&, const std::int32_t*, const Float16*, const Float16*,
                             Float16*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const Float16*, Float16*);
template void position_backward(const EmbeddingShape&, const Float16*, Float16*);

template <class T>
void first_token(const FirstTokenShape& shape, const T* x, T* y) {
  const std::int64_t width = shape.width;
  parallel_for(shape.samples, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t sample = begin; sample < end; ++sample)
      std::copy_n(x + sample * shape.sequence * width, width, y + sample * width);
  });
}

template <class T>
void first_token_backward(const FirstTokenShape& shape, const T* dy, T* dx) {
  const std::int64_t width = shape.width;
  parallel_for(shape.samples, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t sample = begin; sample < end; ++sample) {
      T* rows = dx + sample * shape.sequence * width;
      std::copy_n(dy + sample * width, width, rows);
      std::fill(rows + width, rows + shape.sequence * width, T{});
    }
  });
}

template void first_token(const FirstTokenShape&, const float*, float*);
template void first_token(const FirstTokenShape&, const double*, double*);
template void first_token_backward(const FirstTokenShape&, const float*, float*);
template void first_token_backward(const FirstTokenShape&, const double*, double*);
template void first_token(const FirstTokenShape&, const Bfloat16*, Bfloat16*);
template void first_token_backward(const FirstTokenShape&, const Bfloat16*, Bfloat16*);
template void first_token(const FirstTokenShape&, const Float16*, Float16*);
template void first_token_backward(const FirstTokenShape&, const Float16*, Float16*);

}  // namespace stowage::cpu
