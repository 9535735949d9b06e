#include "kernels/cpu/embedding.h"

#include <algorithm>
#include <string>

#include "src/base/parallel_for.h"
#include "stowage/error.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t rows_per_chunk = 64;
constexpr std::int64_t columns_per_task = 64;

void check_tokens(const EmbeddingShape& shape, const std::int32_t* tokens) {
  const std::int32_t* end = tokens + shape.tokens;
  const std::int32_t* bad =
      std::find_if(tokens, end, [&](std::int32_t token) { return token < 0 || token >= shape.vocabulary; });
  if (bad == end) return;
  throw InvalidInput("embedding: token " + std::to_string(*bad) + " at position " +
                     std::to_string(bad - tokens) + " is outside the table of " +
                     std::to_string(shape.vocabulary) + " rows; give tokens from 0 to " +
                     std::to_string(shape.vocabulary - 1));
}

template <class T>
void add_row(std::int64_t width, const T* row, T* sum) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) sum[i] += row[i];
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
      std::copy(row, row + width, y + n * width);
      if (positions != nullptr) add_row(width, positions + n % shape.sequence * width, y + n * width);
    }
  });
}

template <class T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* dy, T* dtable) {
  check_tokens(shape, tokens);
  const std::int64_t stride = shape.width;
  parallel_for(stride, columns_per_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < shape.vocabulary; ++row) {
      std::fill(dtable + row * stride + begin, dtable + row * stride + end, T{0});
    }
    for (std::int64_t n = 0; n < shape.tokens; ++n) {
      add_row(end - begin, dy + n * stride + begin, dtable + tokens[n] * stride + begin);
    }
  });
}

template <class T>
void position_backward(const EmbeddingShape& shape, const T* dy, T* dpositions) {
  const std::int64_t width = shape.width;
  parallel_for(shape.sequence, rows_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      T* sum = dpositions + s * width;
      std::fill(sum, sum + width, T{0});
      for (std::int64_t n = s; n < shape.tokens; n += shape.sequence) add_row(width, dy + n * width, sum);
    }
  });
}

template void embedding(const EmbeddingShape&, const std::int32_t*, const float*, const float*, float*);
template void embedding(const EmbeddingShape&, const std::int32_t*, const double*, const double*, double*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const float*, float*);
template void embedding_backward(const EmbeddingShape&, const std::int32_t*, const double*, double*);
template void position_backward(const EmbeddingShape&, const float*, float*);
template void position_backward(const EmbeddingShape&, const double*, double*);

}  // namespace stowage::cpu
