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

template <class T>
STOWAGE_HOST_DEVICE Statistics<T> normalise_row(std::int64_t width, T epsilon, const T* x, const T* gain,
                                                const T* bias, T* y) {
  const T count = static_cast<T>(width);
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < width; ++i) sum += x[i];
  const T mean = sum / count;
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const T rstd = 1 / std::sqrt(squares / count + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * rstd * gain[i] + bias[i];
  return {mean, rstd};
}

// dx = rstd (g - average(g) - n average(g n)) (+ before), with n = (x - mean) rstd and g = dy gain.
template <class T>
STOWAGE_HOST_DEVICE void backward_row(std::int64_t width, const T* x, const T* gain, T mean, T rstd,
                                      const T* dy, const T* before, T* dx) {
  const T count = static_cast<T>(width);
  T sum = 0;
  T product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (std::int64_t i = 0; i < width; ++i) {
    const T g = dy[i] * gain[i];
    sum += g;
    product += g * ((x[i] - mean) * rstd);
  }
  const T average = sum / count;
  const T slope = product / count;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) {
    dx[i] = rstd * (dy[i] * gain[i] - average - (x[i] - mean) * rstd * slope);
  }
  if (before == nullptr) return;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) dx[i] += before[i];
}

template <class T>
struct ParameterSums {
  std::int64_t rows, stride;
  const T* x;
  const Sum<T>*mean, *rstd;
  const T* dy;
  T *dgain, *dbias;
};

template <class T>
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
      const Sum<T> mean = sums.mean[row];
      const Sum<T> rstd = sums.rstd[row];
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) {
        gain_part[i] += wide(dy[i]) * ((wide(x[i]) - mean) * rstd);
        bias_part[i] += wide(dy[i]);
      }
    }
    for (std::int64_t i = 0; i < width; ++i) gain[i] += gain_part[i];
    for (std::int64_t i = 0; i < width; ++i) bias[i] += bias_part[i];
  }
  for (std::int64_t i = 0; i < width; ++i) sums.dgain[begin + i] = rounded<T>(gain[i]);
  for (std::int64_t i = 0; i < width; ++i) sums.dbias[begin + i] = rounded<T>(bias[i]);
}

STOWAGE_CLONES Statistics<float> forward(std::int64_t width, float epsilon, const float* x, const float* gain,
                                         const float* bias, float* y) {
  return normalise_row(width, epsilon, x, gain, bias, y);
}
Statistics<double> forward(std::int64_t width, double epsilon, const double* x, const double* gain,
                           const double* bias, double* y) {
  return normalise_row(width, epsilon, x, gain, bias, y);
}

STOWAGE_CLONES void backward(std::int64_t width, const float* x, const float* gain, float mean, float rstd,
                             const float* dy, const float* before, float* dx) {
  backward_row(width, x, gain, mean, rstd, dy, before, dx);
}
void backward(std::int64_t width, const double* x, const double* gain, double mean, double rstd,
              const double* dy, const double* before, double* dx) {
  backward_row(width, x, gain, mean, rstd, dy, before, dx);
}

// The width of a whole block is a constant to the compiler.
STOWAGE_CLONES void parameters(const ParameterSums<float>& sums, std::int64_t begin, std::int64_t width) {
  if (width == block) parameter_block(sums, begin, block);
  if (width != block) parameter_block(sums, begin, width);
}
STOWAGE_CLONES void parameters(const ParameterSums<Bfloat16>& sums, std::int64_t begin, std::int64_t width) {
  if (width == block) parameter_block(sums, begin, block);
  if (width != block) parameter_block(sums, begin, width);
}
STOWAGE_CLONES void parameters(const ParameterSums<Float16>& sums, std::int64_t begin, std::int64_t width) {
  if (width == block) parameter_block(sums, begin, block);
  if (width != block) parameter_block(sums, begin, width);
}
void parameters(const ParameterSums<double>& sums, std::int64_t begin, std::int64_t width) {
  parameter_block(sums, begin, width);
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

}  // namespace

template <class T>
void layer_norm(std::int64_t rows, std::int64_t width, double epsilon, const T* x, const T* gain,
                const T* bias, T* y, Sum<T>* mean, Sum<T>* rstd) {
  parallel_for(rows, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end) {
    const Rows<T> scratch(width);
    const Sum<T>* const wide_gain = loaded(width, gain, scratch.buffer(0));
    const Sum<T>* const wide_bias = loaded(width, bias, scratch.buffer(1));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * width;
      Sum<T>* const to = target(y + at, scratch.buffer(2));
      const auto found = forward(width, static_cast<Sum<T>>(epsilon),
                                 loaded(width, x + at, scratch.buffer(2)), wide_gain, wide_bias, to);
      store(width, to, y + at);
      mean[row] = found.mean;
      rstd[row] = found.rstd;
    }
  });
}

template <class T>
void layer_norm_backward(std::int64_t rows, std::int64_t width, const T* x, const T* gain, const Sum<T>* mean,
                         const Sum<T>* rstd, const T* dy, const T* before, T* dx) {
  parallel_for(rows, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end) {
    const Rows<T> scratch(width);
    const Sum<T>* const wide_gain = loaded(width, gain, scratch.buffer(0));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * width;
      Sum<T>* const to = target(dx + at, scratch.buffer(1));
      const Sum<T>* const other = before == nullptr ? nullptr : loaded(width, before + at, scratch.buffer(2));
      backward(width, loaded(width, x + at, scratch.buffer(3)), wide_gain, mean[row], rstd[row],
               loaded(width, dy + at, scratch.buffer(1)), other, to);
      store(width, to, dx + at);
    }
  });
}

template <class T>
void layer_norm_backward_parameters(std::int64_t rows, std::int64_t width, const T* x, const Sum<T>* mean,
                                    const Sum<T>* rstd, const T* dy, T* dgain, T* dbias) {
  const ParameterSums<T> sums{rows, width, x, mean, rstd, dy, dgain, dbias};
  parallel_for(width, block,
               [&](std::int64_t begin, std::int64_t end) { parameters(sums, begin, end - begin); });
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

}  // namespace stowage::cpu
