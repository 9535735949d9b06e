// Layer normalisation (Ba, Kiros & Hinton, "Layer Normalization") over rows of `width` elements.
// T: float, Bfloat16 or Float16; gain and bias T[width]; mean and rstd float[rows]; sums in f32. Any width
// and alignment. Stream order. Throws DeviceError.
#pragma once

#include <cstdint>

namespace stowage::cuda {

struct Rows {
  std::int64_t rows = 0, width = 0;
};

// y = (x - mean) rstd gain + bias, rstd = 1 / sqrt(variance + epsilon). A row of at most 256 packs has a
// warp, a wider row a block; rows of up to 2,048 packs are held in registers, and read once.
template <class T>
void layer_norm(const Rows& shape, double epsilon, const T* x, const T* gain, const T* bias, T* y,
                float* mean, float* rstd, void* stream);

template <class T>
struct LayerNormGradient {
  const T* x = nullptr;
  const T* gain = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const T* dy = nullptr;
  const T* before = nullptr;  // [rows, width]: another gradient of x; null: none
  T* dx = nullptr;            // may be dy
  T* dgain = nullptr;         // [width], as is dbias: both or none
  T* dbias = nullptr;
};

// dx = rstd (g - average(g) - n average(g n)) + before, rounded once, with n = (x - mean) rstd and g = dy
// gain; dgain = column sums of dy n, dbias = column sums of dy. Takes one pass, except for rows of more than
// 512 packs, whose column sums are a separate pass. Scratch: column_sum.h.
template <class T>
void layer_norm_backward(const Rows& shape, const LayerNormGradient<T>& of, void* stream);

// Computes only dgain and dbias.
template <class T>
void layer_norm_backward_parameters(const Rows& shape, const T* x, const float* mean, const float* rstd,
                                    const T* dy, T* dgain, T* dbias, void* stream);

}  // namespace stowage::cuda
