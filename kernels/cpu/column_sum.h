// Sums over the rows of a matrix.
#pragma once

#include <cstdint>

namespace stowage::cpu {

// sum[c] = x[0,c] + x[1,c] + …: runs of 64 rows are summed first, then the runs, both in order.
// Columns, not rows, are shared among threads. With `add`, all that onto what `sum` holds.
// Out: T, or f32 sums of bf16 or f16.
template <class T, class Out>
void column_sum(std::int64_t rows, std::int64_t columns, const T* x, Out* sum, bool add = false);

}  // namespace stowage::cpu
