#include "kernels/cpu/elementwise.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/storage.h"
#include "kernels/math/gelu.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t chunk = 16384;
constexpr std::int64_t block = 512;
static_assert(chunk % block == 0);

template <class T>
STOWAGE_HOST_DEVICE void add_loop(std::int64_t count, const T* a, const T* b, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

template <class Form, class T>
STOWAGE_HOST_DEVICE void gelu_loop(std::int64_t count, const T* x, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = Form::value(x[i]);
}

template <class Form, class T>
STOWAGE_HOST_DEVICE void gelu_backward_loop(std::int64_t count, const T* x, const T* dy, T* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dx[i] = dy[i] * Form::derivative(x[i]);
}

STOWAGE_CLONES void add_range(std::int64_t count, const float* a, const float* b, float* y) {
  add_loop(count, a, b, y);
}
void add_range(std::int64_t count, const double* a, const double* b, double* y) { add_loop(count, a, b, y); }

STOWAGE_CLONES void gelu_range(GeluTanh, std::int64_t count, const float* x, float* y) {
  gelu_loop<GeluTanh>(count, x, y);
}
STOWAGE_CLONES void gelu_range(GeluErf, std::int64_t count, const float* x, float* y) {
  gelu_loop<GeluErf>(count, x, y);
}
template <class Form>
void gelu_range(Form, std::int64_t count, const double* x, double* y) {
  gelu_loop<Form>(count, x, y);
}

STOWAGE_CLONES void gelu_backward_range(GeluTanh, std::int64_t count, const float* x, const float* dy,
                                        float* dx) {
  gelu_backward_loop<GeluTanh>(count, x, dy, dx);
}
STOWAGE_CLONES void gelu_backward_range(GeluErf, std::int64_t count, const float* x, const float* dy,
                                        float* dx) {
  gelu_backward_loop<GeluErf>(count, x, dy, dx);
}
template <class Form>
void gelu_backward_range(Form, std::int64_t count, const double* x, const double* dy, double* dx) {
  gelu_backward_loop<Form>(count, x, dy, dx);
}

// Calls each(begin, length) for parts of [0, count), in parallel. Parts of a narrow type are blocks, which
// fit the buffers; other types need no widening, and their parts are whole chunks.
template <class T, class Each>
void for_parts(std::int64_t count, Each&& each) {
  parallel_for(count, chunk, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t part = is_narrow<T> ? block : chunk;
    for (std::int64_t first = begin; first < end; first += part) each(first, std::min(part, end - first));
  });
}

// y = function(x), or function(a, b), which takes (count, inputs…, output).
template <class T, class Function>
void map(std::int64_t count, const T* x, T* y, const Function& function) {
  for_parts<T>(count, [&](std::int64_t begin, std::int64_t length) {
    Sum<T> buffer[block];
    Sum<T>* const to = target(y + begin, buffer);
    function(length, loaded(length, x + begin, buffer), to);
    store(length, to, y + begin);
  });
}
template <class T, class Function>
void map(std::int64_t count, const T* a, const T* b, T* y, const Function& function) {
  for_parts<T>(count, [&](std::int64_t begin, std::int64_t length) {
    Sum<T> buffer[block];
    Sum<T> second[block];
    Sum<T>* const to = target(y + begin, buffer);
    function(length, loaded(length, a + begin, buffer), loaded(length, b + begin, second), to);
    store(length, to, y + begin);
  });
}

// y = a + b; at most a block of a narrow type.
template <class T>
void add_part(std::int64_t length, const T* a, const T* b, T* y) {
  Sum<T> buffer[block];
  Sum<T> second[block];
  Sum<T>* const to = target(y, buffer);
  add_range(length, loaded(length, a, buffer), loaded(length, b, second), to);
  store(length, to, y);
}

// y = the tree sum of rows that are `stride` apart; at most a block.
template <class T>
void add_rows(std::int64_t rows, std::int64_t stride, std::int64_t length, const T* a, T* y) {
  if (rows == 1) std::copy_n(a, length, y);
  if (rows == 2) add_part(length, a, a + stride, y);
  if (rows <= 2) return;
  T right[block];
  const std::int64_t half = rows / 2;
  add_rows(half, stride, length, a, y);
  add_rows(half, stride, length, a + half * stride, right);
  add_part(length, y, right, y);
}

}  // namespace

template <class T>
void add(std::int64_t count, const T* a, const T* b, T* y) {
  for_parts<T>(count, [&](std::int64_t begin, std::int64_t length) {
    add_part(length, a + begin, b + begin, y + begin);
  });
}

template <class T>
void tree_sum(std::int64_t rows, std::int64_t length, std::int64_t count, const T* a, T* y) {
  parallel_for(length, chunk, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::clamp(count, begin, end);
    for (std::int64_t first = begin; first < last; first += block)
      add_rows(rows, length, std::min(block, last - first), a + first, y + first);
    std::fill(y + last, y + end, T{});
  });
}

// Works in blocks that stay in the first-level cache, since y may be a or b.
template <class T>
void add_dropout(const RandomStream& stream, double probability, std::int64_t count, const T* a, const T* b,
                 T* y) {
  const DropoutMask mask(stream, probability);
  parallel_for(count, chunk, [&](std::int64_t begin, std::int64_t end) {
    Sum<T> kept[block];
    Sum<T> buffer[block];
    for (std::int64_t first = begin; first < end; first += block) {
      const std::int64_t length = std::min(block, end - first);
      mask.apply(static_cast<std::uint64_t>(first), length, loaded(length, b + first, kept), kept);
      Sum<T>* const to = target(y + first, buffer);
      add_range(length, loaded(length, a + first, buffer), kept, to);
      store(length, to, y + first);
    }
  });
}

template <class T>
void gelu(GeluForm form, std::int64_t count, const T* x, T* y) {
  map(count, x, y, [form](auto... of) {
    if (form == GeluForm::tanh) gelu_range(GeluTanh{}, of...);
    if (form == GeluForm::erf) gelu_range(GeluErf{}, of...);
  });
}

template <class T>
void gelu_backward(GeluForm form, std::int64_t count, const T* x, const T* dy, T* dx) {
  map(count, x, dy, dx, [form](auto... of) {
    if (form == GeluForm::tanh) gelu_backward_range(GeluTanh{}, of...);
    if (form == GeluForm::erf) gelu_backward_range(GeluErf{}, of...);
  });
}

template <class T>
void tanh(std::int64_t count, const T* x, T* y) {
  parallel_for(count, chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = rounded<T>(std::tanh(wide(x[i])));
  });
}

template <class T>
void tanh_backward(std::int64_t count, const T* y, const T* dy, T* dx) {
  parallel_for(count, chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      dx[i] = rounded<T>(wide(dy[i]) * ((1 - wide(y[i])) * (1 + wide(y[i]))));
  });
}

template <class T>
void dropout(const RandomStream& stream, double probability, std::int64_t count, const T* x, T* y) {
  const DropoutMask mask(stream, probability);
  for_parts<T>(count, [&](std::int64_t begin, std::int64_t length) {
    Sum<T> buffer[block];
    Sum<T>* const to = target(y + begin, buffer);
    mask.apply(static_cast<std::uint64_t>(begin), length, loaded(length, x + begin, buffer), to);
    store(length, to, y + begin);
  });
}

template void add(std::int64_t, const float*, const float*, float*);
template void add(std::int64_t, const double*, const double*, double*);
template void tree_sum(std::int64_t, std::int64_t, std::int64_t, const float*, float*);
template void tree_sum(std::int64_t, std::int64_t, std::int64_t, const double*, double*);
template void tree_sum(std::int64_t, std::int64_t, std::int64_t, const Bfloat16*, Bfloat16*);
template void tree_sum(std::int64_t, std::int64_t, std::int64_t, const Float16*, Float16*);
template void add_dropout(const RandomStream&, double, std::int64_t, const float*, const float*, float*);
template void add_dropout(const RandomStream&, double, std::int64_t, const double*, const double*, double*);
template void gelu(GeluForm, std::int64_t, const float*, float*);
template void gelu(GeluForm, std::int64_t, const double*, double*);
template void gelu_backward(GeluForm, std::int64_t, const float*, const float*, float*);
template void gelu_backward(GeluForm, std::int64_t, const double*, const double*, double*);
template void tanh(std::int64_t, const float*, float*);
template void tanh(std::int64_t, const double*, double*);
template void tanh_backward(std::int64_t, const float*, const float*, float*);
template void tanh_backward(std::int64_t, const double*, const double*, double*);
template void dropout(const RandomStream&, double, std::int64_t, const float*, float*);
template void dropout(const RandomStream&, double, std::int64_t, const double*, double*);
template void add(std::int64_t, const Bfloat16*, const Bfloat16*, Bfloat16*);
template void add_dropout(const RandomStream&, double, std::int64_t, const Bfloat16*, const Bfloat16*,
                          Bfloat16*);
template void gelu(GeluForm, std::int64_t, const Bfloat16*, Bfloat16*);
template void gelu_backward(GeluForm, std::int64_t, const Bfloat16*, const Bfloat16*, Bfloat16*);
template void tanh(std::int64_t, const Bfloat16*, Bfloat16*);
template void tanh_backward(std::int64_t, const Bfloat16*, const Bfloat16*, Bfloat16*);
template void dropout(const RandomStream&, double, std::int64_t, const Bfloat16*, Bfloat16*);
template void add(std::int64_t, const Float16*, const Float16*, Float16*);
template void add_dropout(const RandomStream&, double, std::int64_t, const Float16*, const Float16*,
                          Float16*);
template void gelu(GeluForm, std::int64_t, const Float16*, Float16*);
template void gelu_backward(GeluForm, std::int64_t, const Float16*, const Float16*, Float16*);
template void tanh(std::int64_t, const Float16*, Float16*);
template void tanh_backward(std::int64_t, const Float16*, const Float16*, Float16*);
template void dropout(const RandomStream&, double, std::int64_t, const Float16*, Float16*);

}  // namespace stowage::cpu
