// y[N,O] = x[N,I] w[I,O] + bias[O], or with `transposed` w stored as [O,I]; and its gradients.
#pragma once

#include <cstdint>

namespace stowage::cpu {

struct LinearShape {
  std::int64_t tokens = 0, inputs = 0, outputs = 0;
  bool transposed = false;
};

// `bias` may be null.
template <class T>
void linear(const LinearShape& shape, const T* x, const T* weight, const T* bias, T* y);
// With `add`, adds to dx.
template <class T>
void linear_backward_input(const LinearShape& shape, const T* dy, const T* weight, T* dx, bool add = false);
// With `add`, adds to dweight. Out: T, or f32 sums of bf16 or f16.
template <class T, class Out>
void linear_backward_weight(const LinearShape& shape, const T* x, const T* dy, Out* dweight,
                            bool add = false);
// dbias[O] = column sums of dy; with `add`, adds them to dbias. Out as above.
template <class T, class Out>
void linear_backward_bias(const LinearShape& shape, const T* dy, Out* dbias, bool add = false);

// sum[c] = x[0,c] + x[1,c] + …: runs of 64 rows are summed first, then the runs, both in order. Columns, not
// rows, are shared among threads. With `add`, adds the result to `sum`. Out: T, or f32 sums of bf16 or f16.
template <class T, class Out>
void column_sum(std::int64_t rows, std::int64_t columns, const T* x, Out* sum, bool add = false);

}  // namespace stowage::cpu
