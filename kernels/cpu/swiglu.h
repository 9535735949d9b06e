// SwiGLU (Shazeer, "GLU Variants Improve Transformer"), element by element.
#pragma once

#include <cstdint>

namespace stowage::cpu {

// y = gate * sigmoid(gate) * up. y may be gate or up.
template <class T>
void swiglu(std::int64_t count, const T* gate, const T* up, T* y);

// dgate may be dy.
template <class T>
void swiglu_backward(std::int64_t count, const T* gate, const T* up, const T* dy, T* dgate, T* dup);

}  // namespace stowage::cpu
