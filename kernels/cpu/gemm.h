// Matrix multiplication: C = op(A) op(B), row-major.
#pragma once

#include <cstdint>

namespace stowage::cpu {

// `transposed` means that the matrix is stored the other way round: A as [k, m], B as [n, k].
// `stride` is the distance between rows as stored.
template <class T>
struct Matrix {
  const T* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
};

template <class T>
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  Matrix<T> a;  // [m, k]
  Matrix<T> b;  // [k, n]
  T* c = nullptr;
  std::int64_t c_stride = 0;
};

// C = scale * A B, or C += scale * A B, in the calling thread: f32 through one oneDNN call held to
// one thread, f64 through plain loops. Where C is not added to, what it held does not matter.
template <class T>
void multiply_here(const Product<T>& product, T scale, bool add);

// C = A B (+ bias[n] on each row, unless null), or with `add` C += A B. C is cut into tiles that depend on
// m and n alone; each tile is one `multiply_here`, and the tiles run in parallel.
template <class T>
void multiply(const Product<T>& product, const T* bias = nullptr, bool add = false);

}  // namespace stowage::cpu
