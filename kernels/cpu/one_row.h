// Products of bf16 and f16 with one row, bound by the time in which memory gives the other matrix: text from
// a model, token by token.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/storage.h"

namespace stowage::cpu {

// True for C = A B with one row of A in bf16 or f16, which multiply_one_row computes.
template <class T, class Out>
bool is_one_narrow_row(const Product<T, Out>& product, bool add) {
  return is_narrow<T> && product.m == 1 && !product.a.transposed && !add;
}

// C = A B (+ bias[n], unless null). Requires is_one_narrow_row(product, false). Reads each element of B once
// and keeps no wider copy of it. Every element of C is a sum in f32, in an order that depends on k alone,
// rounded once.
template <Narrow T, class Out>
void multiply_one_row(const Product<T, Out>& product, const T* bias);

}  // namespace stowage::cpu
