// Normalisation over the last dimension: layer norm (Ba, Kiros & Hinton, "Layer Normalization"), and RMS norm
// (Zhang & Sennrich, "Root Mean Square Layer Normalization").
#pragma once

#include <cstdint>

#include "kernels/cpu/storage.h"

namespace stowage::cpu {

// y = (x - mean) * rstd * gain + bias, rstd = 1 / sqrt(variance + epsilon), row by row.
template <class T>
void layer_norm(std::int64_t rows, std::int64_t width, double epsilon, const T* x, const T* gain,
                const T* bias, T* y, Sum<T>* mean, Sum<T>* rstd);

// dx may be dy. `before`, unless null, is added: another gradient of x.
template <class T>
void layer_norm_backward(std::int64_t rows, std::int64_t width, const T* x, const T* gain, const Sum<T>* mean,
                         const Sum<T>* rstd, const T* dy, const T* before, T* dx);

// Sums over rows: runs of 64 rows first, then the runs, both in order.
template <class T>
void layer_norm_backward_parameters(std::int64_t rows, std::int64_t width, const T* x, const Sum<T>* mean,
                                    const Sum<T>* rstd, const T* dy, T* dgain, T* dbias);

// y = x * rstd * gain, rstd = 1 / sqrt(mean of squares + epsilon), row by row.
template <class T>
void rms_norm(std::int64_t rows, std::int64_t width, double epsilon, const T* x, const T* gain, T* y,
              Sum<T>* rstd);

// As layer_norm_backward and layer_norm_backward_parameters.
template <class T>
void rms_norm_backward(std::int64_t rows, std::int64_t width, const T* x, const T* gain, const Sum<T>* rstd,
                       const T* dy, const T* before, T* dx);
template <class T>
void rms_norm_backward_parameters(std::int64_t rows, std::int64_t width, const T* x, const Sum<T>* rstd,
                                  const T* dy, T* dgain);

}  // namespace stowage::cpu
