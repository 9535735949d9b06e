// Matrix multiplication: C = op(A) op(B), row-major.
#pragma once

#include <cstdint>

#include "kernels/cpu/storage.h"

namespace stowage::cpu {

// `transposed` means that the matrix is stored the other way round: A as [k, m], B as [n, k].
// `stride` is the distance between rows as stored.
template <class T>
struct Matrix {
  const T* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
};

// Out: T, or f32 sums of bf16 or f16.
template <class T, class Out = T>
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  Matrix<T> a;  // [m, k]
  Matrix<T> b;  // [k, n]
  Out* c = nullptr;
  std::int64_t c_stride = 0;
};

// Method for products of bf16. Both sum the same exact products in f32, in different orders.
enum class NarrowProducts : std::uint8_t {
  native,   // oneDNN's bf16 product, which needs AVX-512 BF16 or AMX
  widened,  // operands are widened piece by piece, then multiplied as f32
};
// Native where the CPU has it, unless set otherwise.
NarrowProducts narrow_products();
// Sets narrow_products(), for tests and measurements. Requires that no product is being computed. Throws
// InvalidInput for `native` on a CPU that lacks it.
void set_narrow_products(NarrowProducts products);

// C = scale * A B, or C += scale * A B, in the calling thread: f32 through one oneDNN call held to one
// thread, bf16 into f32 sums by narrow_products(), f16 into f32 sums of widened operands, f64 through plain
// loops. Without `add`, C's old values do not matter.
template <class T, class Out>
void multiply_here(const Product<T, Out>& product, Out scale, bool add);
template <>
void multiply_here(const Product<float>& product, float scale, bool add);
template <>
void multiply_here(const Product<Bfloat16, float>& product, float scale, bool add);
template <>
void multiply_here(const Product<Float16, float>& product, float scale, bool add);
template <>
void multiply_here(const Product<double>& product, double scale, bool add);

// C = A B (+ bias[n] on each row, unless null), or with `add` C += A B. C is cut into tiles that depend on
// m and n alone (for bf16 on narrow_products(), too); each tile is one `multiply_here`, and the tiles run in
// parallel. A tile of bf16 or f16 is summed in f32, with C's old values where they are added to, and rounded
// once. One row of bf16 or f16 is computed apart (one_row.h).
template <class T, class Out>
void multiply(const Product<T, Out>& product, const T* bias = nullptr, bool add = false);

}  // namespace stowage::cpu
