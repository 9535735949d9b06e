#include "kernels/cpu/linear.h"

#include <algorithm>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/storage.h"
#include "kernels/math/host_device.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t run = 64;
constexpr std::int64_t block = 64;  // columns that one task sums

template <class T, class Out>
STOWAGE_HOST_DEVICE void sum_block(std::int64_t rows, std::int64_t stride, std::int64_t width, const T* x,
                                   Out* sum, bool add) {
  Sum<T> total[block] = {};
  for (std::int64_t first = 0; first < rows; first += run) {
    const std::int64_t last = std::min(first + run, rows);
    Sum<T> part[block] = {};
    for (std::int64_t row = first; row < last; ++row) {
      const T* line = x + row * stride;
      if (width == block) {
#pragma omp simd
        for (std::int64_t column = 0; column < block; ++column) part[column] += wide(line[column]);
      } else {
        for (std::int64_t column = 0; column < width; ++column) part[column] += wide(line[column]);
      }
    }
    for (std::int64_t column = 0; column < width; ++column) total[column] += part[column];
  }
  for (std::int64_t column = 0; column < width; ++column)
    sum[column] = rounded<Out>(add ? wide(sum[column]) + total[column] : total[column]);
}

STOWAGE_CLONES void sum_columns(std::int64_t rows, std::int64_t stride, std::int64_t width, const float* x,
                                float* sum, bool add) {
  sum_block(rows, stride, width, x, sum, add);
}

void sum_columns(std::int64_t rows, std::int64_t stride, std::int64_t width, const double* x, double* sum,
                 bool add) {
  sum_block(rows, stride, width, x, sum, add);
}

STOWAGE_CLONES void sum_columns(std::int64_t rows, std::int64_t stride, std::int64_t width, const Bfloat16* x,
                                Bfloat16* sum, bool add) {
  sum_block(rows, stride, width, x, sum, add);
}

STOWAGE_CLONES void sum_columns(std::int64_t rows, std::int64_t stride, std::int64_t width, const Bfloat16* x,
                                float* sum, bool add) {
  sum_block(rows, stride, width, x, sum, add);
}

STOWAGE_CLONES void sum_columns(std::int64_t rows, std::int64_t stride, std::int64_t width, const Float16* x,
                                Float16* sum, bool add) {
  sum_block(rows, stride, width, x, sum, add);
}

STOWAGE_CLONES void sum_columns(std::int64_t rows, std::int64_t stride, std::int64_t width, const Float16* x,
                                float* sum, bool add) {
  sum_block(rows, stride, width, x, sum, add);
}

}  // namespace

template <class T, class Out>
void column_sum(std::int64_t rows, std::int64_t columns, const T* x, Out* sum, bool add) {
  parallel_for(columns, block, [&](std::int64_t begin, std::int64_t end) {
    sum_columns(rows, columns, end - begin, x + begin, sum + begin, add);
  });
}

template void column_sum(std::int64_t, std::int64_t, const float*, float*, bool);
template void column_sum(std::int64_t, std::int64_t, const double*, double*, bool);
template void column_sum(std::int64_t, std::int64_t, const Bfloat16*, Bfloat16*, bool);
template void column_sum(std::int64_t, std::int64_t, const Bfloat16*, float*, bool);
template void column_sum(std::int64_t, std::int64_t, const Float16*, Float16*, bool);
template void column_sum(std::int64_t, std::int64_t, const Float16*, float*, bool);

}  // namespace stowage::cpu
