// Column sums in two stages: fixed chunks of rows into the lane's scratch, then the chunks in order.
// How the rows are cut depends on the shape alone.
//
// Scratch: at most column_sum_scratch bytes, or one f32 for each column and sum where that is more.
// Stream order. Throws DeviceError, and InvalidInput where the lane's scratch is too small.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/layer_norm.h"

namespace stowage::cuda {

inline constexpr std::int64_t column_sum_scratch = std::int64_t{8} << 20;

// Consecutive chunks of rows. A kernel writes partial[chunk, sum, width], and add_chunks adds it up: to
// first[width], and of a second sum to second[width]; with `add`, onto what these hold.
struct ColumnChunks {
  std::int64_t rows = 0, width = 0, rows_per_chunk = 0, chunks = 0;
};
// As many chunks as column_sum_scratch has room for, but no more than `most_chunks`, nor of fewer rows than
// `least_rows`.
ColumnChunks cut_rows(const Rows& shape, int sums, std::int64_t least_rows, std::int64_t most_chunks);
template <class To>
void add_chunks(const ColumnChunks& cut, int sums, const float* partial, To* first, To* second, void* stream,
                bool add = false);

// sum[width] = the columns of x[rows, width], in f32; with `add`, onto what `sum` holds. T: float, Bfloat16
// or Float16; To: T or float.
template <class T, class To>
void column_sum(const Rows& shape, const T* x, To* sum, void* stream, bool add = false);

// gelu_backward of [rows, width], and in the same pass dbias[width], the column sums of dx before it is
// rounded to T. dx may be dy.
template <class T>
void gelu_backward_bias(GeluForm form, const Rows& shape, const T* x, const T* dy, T* dx, T* dbias,
                        void* stream);

}  // namespace stowage::cuda
