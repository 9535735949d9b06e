// SwiGLU (Shazeer, "GLU Variants Improve Transformer"), element by element. T: float, Bfloat16 or Float16,
// computed in f32. Any count and alignment. Works in stream order, without scratch. Throws DeviceError.
#pragma once

#include <cstdint>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

namespace stowage::cuda {

// y = gate * sigmoid(gate) * up. y may be gate or up.
template <class T>
void swiglu(std::int64_t count, const T* gate, const T* up, T* y, void* stream);

// dgate may be dy.
template <class T>
void swiglu_backward(std::int64_t count, const T* gate, const T* up, const T* dy, T* dgate, T* dup,
                     void* stream);

}  // namespace stowage::cuda
