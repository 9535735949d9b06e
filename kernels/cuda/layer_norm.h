// Normalisation of rows of `width` elements: layer norm (Ba, Kiros & Hinton, "Layer Normalization") and RMS
// norm (Zhang & Sennrich, "Root Mean Square Layer Normalization"). T: float, Bfloat16 or Float16; gain and
// bias T[width]; mean and rstd float[rows]; sums in f32. Any width and alignment. Stream order. Throws
// DeviceError.
#pragma once

#include <cstdint>

namespace stowage::cuda {

struct Rows {
  std::int64_t rows = 0, width = 0;
};

// The norm that a kernel computes. `sums`: the sums of a row, and of a column, that its gradient needs.
struct LayerNorm {
  static constexpr bool centred = true;
  static constexpr int sums = 2;
  static constexpr const char *name = "layer_norm", *backward_name = "layer_norm_backward";
};
struct RmsNorm {
  static constexpr bool centred = false;
  static constexpr int sums = 1;
  static constexpr const char *name = "rms_norm", *backward_name = "rms_norm_backward";
};

// y = (x - mean) rstd gain + bias, rstd = 1 / sqrt(variance + epsilon). A row of at most 256 packs has a
// warp, a wider row a block; rows of up to 2,048 packs are held in registers, and read once.
template <class T>
void layer_norm(const Rows& shape, double epsilon, const T* x, const T* gain, const T* bias, T* y,
                float* mean, float* rstd, void* stream);

// y = x rstd gain, rstd = 1 / sqrt(mean of squares + epsilon), of rows as above.
template <class T>
void rms_norm(const Rows& shape, double epsilon, const T* x, const T* gain, T* y, float* rstd, void* stream);

template <class T>
struct NormGradient {
  const T* x = nullptr;
  const T* gain = nullptr;
  const float* mean = nullptr;  // null for RMS norm
  const float* rstd = nullptr;
  const T* dy = nullptr;
  const T* before = nullptr;  // [rows, width]: another gradient of x; null: none
  T* dx = nullptr;            // may be dy
  T* dgain = nullptr;         // [width], as is dbias: both or none; RMS norm has no dbias
  T* dbias = nullptr;
};

// dx = rstd (g - average(g) - n average(g n)) + before, rounded once, with n = (x - mean) rstd and g = dy
// gain; dgain = column sums of dy n, dbias = column sums of dy. Takes one pass, except for rows of more than
// 512 packs, whose column sums are a separate pass. Scratch: column_sum.h.
template <class T>
void layer_norm_backward(const Rows& shape, const NormGradient<T>& of, void* stream);

// As above with the mean 0, and without average(g) and dbias.
template <class T>
void rms_norm_backward(const Rows& shape, const NormGradient<T>& of, void* stream);

// These compute only dgain and dbias.
template <class T>
void layer_norm_backward_parameters(const Rows& shape, const T* x, const float* mean, const float* rstd,
                                    const T* dy, T* dgain, T* dbias, void* stream);
template <class T>
void rms_norm_backward_parameters(const Rows& shape, const T* x, const float* rstd, const T* dy, T* dgain,
                                  void* stream);

}  // namespace stowage::cuda
