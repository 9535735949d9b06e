// Kernels that treat each element alone. Outputs may be the very same memory as inputs.
#pragma once

#include <cstdint>

#include "kernels/math/philox.h"

namespace stowage::cpu {

enum class GeluForm : std::uint8_t { tanh, erf };

// y = a + b
template <class T>
void add(std::int64_t count, const T* a, const T* b, T* y);
// y[i], i < count: the sum of a[row * length + i] over `rows` rows, a power of two, in a balanced tree of
// adjacent pairs (stowage/tree_sum.h), with the bits of `add`. y[i] is 0 for i in [count, length), where a is
// not read. Requires that y is not a.
template <class T>
void tree_sum(std::int64_t rows, std::int64_t length, std::int64_t count, const T* a, T* y);
// y = a + dropout(b)
template <class T>
void add_dropout(const RandomStream& stream, double probability, std::int64_t count, const T* a, const T* b,
                 T* y);
template <class T>
void gelu(GeluForm form, std::int64_t count, const T* x, T* y);
template <class T>
void gelu_backward(GeluForm form, std::int64_t count, const T* x, const T* dy, T* dx);
// y = tanh(x)
template <class T>
void tanh(std::int64_t count, const T* x, T* y);
// dx = dy * (1 - y^2), with y = tanh(x)
template <class T>
void tanh_backward(std::int64_t count, const T* y, const T* dy, T* dx);
// y = x / (1 - probability) where the element's word is kept, else 0.
template <class T>
void dropout(const RandomStream& stream, double probability, std::int64_t count, const T* x, T* y);

}  // namespace stowage::cpu
