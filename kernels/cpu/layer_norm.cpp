#include "kernels/cpu/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/clones.h"
#include "kernels/math/host_device.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t elements_per_chunk = 16384;
constexpr std::int64_t run = 64;    // rows summed before their sum is added to the others'
constexpr std::int64_t block = 64;  // columns that one task of the parameters' gradient sums

std::int64_t rows_per_chunk(std::int64_t width) {
  return std::max<std::int64_t>(1, elements_per_chunk / width);
}

template <class T>
struct Statistics {
  T mean, rstd;
};

// RMS norm is the layer norm of rows whose mean counts as 0, without a bias: not `centred`.
template <bool centred, class T>
STOWAGE_HOST_DEVICE Statistics<T> normalise_row(std::int64_t width, T epsilon, const T* x, const T* gain,
                                                const T* bias, T* y) {
  const T count = static_cast<T>(width);
  T mean = 0;
  if constexpr (centred) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < width; ++i) sum += x[i];
    mean = sum / count;
  }
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const T rstd = 1 / std::sqrt(squares / count + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) {
    const T scaled = (x[i] - mean) * rstd * gain[i];
    y[i] = centred ? scaled + bias[i] : scaled;
  }
  return {mean, rstd};
}

// dx = rstd (g - average(g) - n average(g n)) (+ before), with n = (x - mean) rstd and g = dy gain. RMS norm
// has no average(g).
template <bool centred, class T>
STOWAGE_HOST_DEVICE void backward_row(std::int64_t width, const T* x, const T* gain, Statistics<T> of,
                                      const T* dy, const T* before, T* dx) {
  const T count = static_cast<T>(width);
  const T mean = centred ? of.mean : 0;
  const T rstd = of.rstd;
  T sum = 0;
  T product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (std::int64_t i = 0; i < width; ++i) {
    const T g = dy[i] * gain[i];
    if constexpr (centred) sum += g;
    product += g * ((x[i] - mean) * rstd);
  }
  const T average = centred ? sum / count : 0;
  const T slope = product / count;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) {
    dx[i] = rstd * (dy[i] * gain[i] - average - (x[i] - mean) * rstd * slope);
  }
  if (before == nullptr) return;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) dx[i] += before[i];
}

// `mean` and `dbias` are null for RMS norm.
template <class T>
struct ParameterSums {
  std::int64_t rows, stride;
  const T* x;
  const Sum<T>*mean, *rstd;
  const T* dy;
  T *dgain, *dbias;
};

template <bool centred, class T>
STOWAGE_HOST_DEVICE void parameter_block(const ParameterSums<T>& sums, std::int64_t begin,
                                         std::int64_t width) {
  Sum<T> gain[block] = {};
  Sum<T> bias[block] = {};
  for (std::int64_t first = 0; first < sums.rows; first += run) {
    const std::int64_t last = std::min(first + run, sums.rows);
    Sum<T> gain_part[block] = {};
    Sum<T> bias_part[block] = {};
    for (std::int64_t row = first; row < last; ++row) {
      const T* x = sums.x + row * sums.stride + begin;
      const T* dy = sums.dy + row * sums.stride + begin;
      const Sum<T> mean = centred ? sums.mean[row] : 0;
      const Sum<T> rstd = sums.rstd[row];
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) {
        gain_part[i] += wide(dy[i]) * ((wide(x[i]) - mean) * rstd);
        if constexpr (centred) bias_part[i] += wide(dy[i]);
      }
    }
    for (std::int64_t i = 0; i < width; ++i) gain[i] += gain_part[i];
    for (std::int64_t i = 0; centred && i < width; ++i) bias[i] += bias_part[i];
  }
  for (std::int64_t i = 0; i < width; ++i) sums.dgain[begin + i] = rounded<T>(gain[i]);
  for (std::int64_t i = 0; centred && i < width; ++i) sums.dbias[begin + i] = rounded<T>(bias[i]);
}

// The width of a whole block is a constant to the compiler.
template <class T>
STOWAGE_HOST_DEVICE void any_parameter_block(const ParameterSums<T>& sums, std::int64_t begin,
                                             std::int64_t width) {
  const bool centred = sums.dbias != nullptr;
  if (centred && width == block) parameter_block<true>(sums, begin, block);
  if (centred && width != block) parameter_block<true>(sums, begin, width);
  if (!centred && width == block) parameter_block<false>(sums, begin, block);
  if (!centred && width != block) parameter_block<false>(sums, begin, width);
}

STOWAGE_CLONES Statistics<float> forward(bool centred, std::int64_t width, float epsilon, const float* x,
                                         const float* gain, const float* bias, float* y) {
  if (centred) return normalise_row<true>(width, epsilon, x, gain, bias, y);
  return normalise_row<false>(width, epsilon, x, gain, bias, y);
}
Statistics<double> forward(bool centred, std::int64_t width, double epsilon, const double* x,
                           const double* gain, const double* bias, double* y) {
  if (centred) return normalise_row<true>(width, epsilon, x, gain, bias, y);
  return normalise_row<false>(width, epsilon, x, gain, bias, y);
}

STOWAGE_CLONES void backward(bool centred, std::int64_t width, const float* x, const float* gain,
                             Statistics<float> of, const float* dy, const float* before, float* dx) {
  if (centred) return backward_row<true>(width, x, gain, of, dy, before, dx);
  backward_row<false>(width, x, gain, of, dy, before, dx);
}
void backward(bool centred, std::int64_t width, const double* x, const double* gain, Statistics<double> of,
              const double* dy, const double* before, double* dx) {
  if (centred) return backward_row<true>(width, x, gain, of, dy, before, dx);
  backward_row<false>(width, x, gain, of, dy, before, dx);
}

STOWAGE_CLONES void parameters(const ParameterSums<float>& sums, std::int64_t begin, std::int64_t width) {
  any_parameter_block(sums, begin, width);
}
STOWAGE_CLONES void parameters(const ParameterSums<Bfloat16>& sums, std::int64_t begin, std::int64_t width) {
  any_parameter_block(sums, begin, width);
}
STOWAGE_CLONES void parameters(const ParameterSums<Float16>& sums, std::int64_t begin, std::int64_t width) {
  any_parameter_block(sums, begin, width);
}
void parameters(const ParameterSums<double>& sums, std::int64_t begin, std::int64_t width) {
  any_parameter_block(sums, begin, width);
}

// Four rows of buffers for narrow types; other types need none.
template <class T>
class Rows {
 public:
  explicit Rows(std::int64_t width)
      : width_(width), data_(is_narrow<T> ? thread_scratch<Sum<T>>(4 * width) : nullptr) {}
  Sum<T>* buffer(std::int64_t index) const { return is_narrow<T> ? data_ + index * width_ : nullptr; }

 private:
  std::int64_t width_;
  Sum<T>* data_;
};

// Without a bias and means: RMS norm.
template <class T>
void normalise(std::int64_t rows, std::int64_t width, double epsilon, const T* x, const T* gain,
               const T* bias, T* y, Sum<T>* mean, Sum<T>* rstd) {
  const bool centred = bias != nullptr;
  parallel_for(rows, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end) {
    const Rows<T> scratch(width);
    const Sum<T>* const wide_gain = loaded(width, gain, scratch.buffer(0));
    const Sum<T>* const wide_bias = centred ? loaded(width, bias, scratch.buffer(1)) : nullptr;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * width;
      Sum<T>* const to = target(y + at, scratch.buffer(2));
      const auto found = forward(centred, width, static_cast<Sum<T>>(epsilon),
                                 loaded(width, x + at, scratch.buffer(2)), wide_gain, wide_bias, to);
      store(width, to, y + at);
      if (mean != nullptr) mean[row] = found.mean;
      rstd[row] = found.rstd;
    }
  });
}

template <class T>
void normalise_backward(std::int64_t rows, std::int64_t width, const T* x, const T* gain, const Sum<T>* mean,
                        const Sum<T>* rstd, const T* dy, const T* before, T* dx) {
  parallel_for(rows, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end) {
    const Rows<T> scratch(width);
    const Sum<T>* const wide_gain = loaded(width, gain, scratch.buffer(0));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * width;
      Sum<T>* const to = target(dx + at, scratch.buffer(1));
      const Sum<T>* const other = before == nullptr ? nullptr : loaded(width, before + at, scratch.buffer(2));
      const bool centred = mean != nullptr;
      backward(centred, width, loaded(width, x + at, scratch.buffer(3)), wide_gain,
               {centred ? mean[row] : 0, rstd[row]}, loaded(width, dy + at, scratch.buffer(1)), other, to);
      store(width, to, dx + at);
    }
  });
}

template <class T>
void sum_parameters(const ParameterSums<T>& sums) {
  parallel_for(sums.stride, block,
               [&](std::int64_t begin, std::int64_t end) { parameters(sums, begin, end - begin); });
}

}  // namespace

template <class T>
void layer_norm(std::int64_t rows, std::int64_t width, double epsilon, const T* x, const T* gain,
                const T* bias, T* y, Sum<T>* mean, Sum<T>* rstd) {
  normalise(rows, width, epsilon, x, gain, bias, y, mean, rstd);
}

template <class T>
void layer_norm_backward(std::int64_t rows, std::int64_t width, const T* x, const T* gain, const Sum<T>* mean,
                         const Sum<T>* rstd, const T* dy, const T* before, T* dx) {
  normalise_backward(rows, width, x, gain, mean, rstd, dy, before, dx);
}

template <class T>
void layer_norm_backward_parameters(std::int64_t rows, std::int64_t width, const T* x, const Sum<T>* mean,
                                    const Sum<T>* rstd, const T* dy, T* dgain, T* dbias) {
  sum_parameters<T>({rows, width, x, mean, rstd, dy, dgain, dbias});
}

template <class T>
void rms_norm(std::int64_t rows, std::int64_t width, double epsilon, const T* x, const T* gain, T* y,
              Sum<T>* rstd) {
  normalise<T>(rows, width, epsilon, x, gain, nullptr, y, nullptr, rstd);
}

template <class T>
void rms_norm_backward(std::int64_t rows, std::int64_t width, const T* x, const T* gain, const Sum<T>* rstd,
                       const T* dy, const T* before, T* dx) {
  normalise_backward<T>(rows, width, x, gain, nullptr, rstd, dy, before, dx);
}

template <class T>
void rms_norm_backward_parameters(std::int64_t rows, std::int64_t width, const T* x, const Sum<T>* rstd,
                                  const T* dy, T* dgain) {
  sum_parameters<T>({rows, width, x, nullptr, rstd, dy, dgain, nullptr});
}

template void layer_norm(std::int64_t, std::int64_t, double, const float*, const float*, const float*, float*,
                         float*, float*);
template void layer_norm(std::int64_t, std::int64_t, double, const double*, const double*, const double*,
                         double*, double*, double*);
template void layer_norm_backward(std::int64_t, std::int64_t, const float*, const float*, const float*,
                                  const float*, const float*, const float*, float*);
template void layer_norm_backward(std::int64_t, std::int64_t, const double*, const double*, const double*,
                                  const double*, const double*, const double*, double*);
template void layer_norm_backward_parameters(std::int64_t, std::int64_t, const float*, const float*,
                                             const float*, const float*, float*, float*);
template void layer_norm_backward_parameters(std::int64_t, std::int64_t, const double*, const double*,
                                             const double*, const double*, double*, double*);
template void layer_norm(std::int64_t, std::int64_t, double, const Bfloat16*, const Bfloat16*,
                         const Bfloat16*, Bfloat16*, float*, float*);
template void layer_norm_backward(std::int64_t, std::int64_t, const Bfloat16*, const Bfloat16*, const float*,
                                  const float*, const Bfloat16*, const Bfloat16*, Bfloat16*);
template void layer_norm_backward_parameters(std::int64_t, std::int64_t, const Bfloat16*, const float*,
                                             const float*, const Bfloat16*, Bfloat16*, Bfloat16*);
template void layer_norm(std::int64_t, std::int64_t, double, const Float16*, const Float16*, const Float16*,
                         Float16*, float*, float*);
template void layer_norm_backward(std::int64_t, std::int64_t, const Float16*, const Float16*, const float*,
                                  const float*, const Float16*, const Float16*, Float16*);
template void layer_norm_backward_parameters(std::int64_t, std::int64_t, const Float16*, const float*,
                                             const float*, const Float16*, Float16*, Float16*);
template void rms_norm(std::int64_t, std::int64_t, double, const float*, const float*, float*, float*);
template void rms_norm_backward(std::int64_t, std::int64_t, const float*, const float*, const float*,
                                const float*, const float*, float*);
template void rms_norm_backward_parameters(std::int64_t, std::int64_t, const float*, const float*,
                                           const float*, float*);
template void rms_norm(std::int64_t, std::int64_t, double, const double*, const double*, double*, double*);
template void rms_norm_backward(std::int64_t, std::int64_t, const double*, const double*, const double*,
                                const double*, const double*, double*);
template void rms_norm_backward_parameters(std::int64_t, std::int64_t, const double*, const double*,
                                           const double*, double*);
template void rms_norm(std::int64_t, std::int64_t, double, const Bfloat16*, const Bfloat16*, Bfloat16*,
                       float*);
template void rms_norm_backward(std::int64_t, std::int64_t, const Bfloat16*, const Bfloat16*, const float*,
                                const Bfloat16*, const Bfloat16*, Bfloat16*);
template void rms_norm_backward_parameters(std::int64_t, std::int64_t, const Bfloat16*, const float*,
                                           const Bfloat16*, Bfloat16*);
template void rms_norm(std::int64_t, std::int64_t, double, const Float16*, const Float16*, Float16*, float*);
template void rms_norm_backward(std::int64_t, std::int64_t, const Float16*, const Float16*, const float*,
                                const Float16*, const Float16*, Float16*);
template void rms_norm_backward_parameters(std::int64_t, std::int64_t, const Float16*, const float*,
                                           const Float16*, Float16*);

}  // namespace stowage::cpu
