// Element by element: sums, GELU, tanh, dropout. T: float, Bfloat16 or Float16, computed in f32. Any count
// and alignment; y may be any of the inputs. Works in stream order, without scratch. Throws DeviceError.
#pragma once

#include <cstdint>

#include "kernels/math/bfloat16.h"
#include "kernels/math/philox.h"

namespace stowage::cuda {

enum class GeluForm : std::uint8_t { tanh, erf };

// y = a + b
template <class T>
void add(std::int64_t count, const T* a, const T* b, T* y, void* stream);

// Computes the CPU's tree_sum with the same bits, for at most 1,024 rows. T may be double, too.
template <class T>
void tree_sum(std::int64_t rows, std::int64_t length, std::int64_t count, const T* a, T* y, void* stream);

// y = a + dropout(b)
template <class T>
void add_dropout(const RandomStream& random, double probability, std::int64_t count, const T* a, const T* b,
                 T* y, void* stream);

// Hendrycks & Gimpel, "Gaussian Error Linear Units", both forms.
template <class T>
void gelu(GeluForm form, std::int64_t count, const T* x, T* y, void* stream);

// dx = dy * gelu'(x)
template <class T>
void gelu_backward(GeluForm form, std::int64_t count, const T* x, const T* dy, T* dx, void* stream);

// y = tanh(x)
template <class T>
void tanh(std::int64_t count, const T* x, T* y, void* stream);

// dx = dy * (1 - y^2), with y = tanh(x)
template <class T>
void tanh_backward(std::int64_t count, const T* y, const T* dy, T* dx, void* stream);

// y = x / (1 - probability) where the stream keeps the element, else 0: the CPU's elements exactly.
template <class T>
void dropout(const RandomStream& random, double probability, std::int64_t count, const T* x, T* y,
             void* stream);

// y = x rounded to T, of 16 bits
template <class T>
void narrow(std::int64_t count, const float* x, T* y, void* stream);

}  // namespace stowage::cuda
