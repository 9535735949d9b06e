// Column sums in two stages: fixed chunks of rows into the lane's scratch, then the chunks in order. The cut
// of the rows depends on the shape alone.
//
// Scratch: at most column_sum_scratch bytes, or one f32 for each column and sum if that is more. Stream
// order. Throws DeviceError, and InvalidInput if the lane's scratch is too small.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/layer_norm.h"

namespace stowage::cuda {

inline constexpr std::int64_t column_sum_scratch = std::int64_t{8} << 20;

// Consecutive chunks of rows. A kernel writes partial[chunk, sum, width], and add_chunks adds it up: the
// first sum to first[width], the second to second[width]; with `add`, it adds to their values.
struct ColumnChunks {
  std::int64_t rows = 0, width = 0, rows_per_chunk = 0, chunks = 0;
};
// Cuts the rows into as many chunks as column_sum_scratch has room for, but at most `most_chunks`, of at
// least `least_rows` rows.
ColumnChunks cut_rows(const Rows& shape, int sums, std::int64_t least_rows, std::int64_t most_chunks);
template <class To>
void add_chunks(const ColumnChunks& cut, int sums, const float* partial, To* first, To* second, void* stream,
                bool add = false);

// sum[width] = column sums of x[rows, width], in f32; with `add`, adds them to `sum`. T: float, Bfloat16 or
// Float16; To: T or float.
template <class T, class To>
void column_sum(const Rows& shape, const T* x, To* sum, void* stream, bool add = false);

// Computes gelu_backward of [rows, width], and in the same pass dbias[width], the column sums of dx before it
// is rounded to T. dx may be dy.
template <class T>
void gelu_backward_bias(GeluForm form, const Rows& shape, const T* x, const T* dy, T* dx, T* dbias,
                        void* stream);

}  // namespace stowage::cuda
