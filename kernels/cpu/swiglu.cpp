#include "kernels/cpu/swiglu.h"

#include <algorithm>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/storage.h"
#include "kernels/math/swiglu.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t chunk = 16384;
constexpr std::int64_t block = 512;  // elements that are widened at a time

template <class T>
STOWAGE_HOST_DEVICE void forward_loop(std::int64_t count, const T* gate, const T* up, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = stowage::swiglu(gate[i], up[i]);
}

template <class T>
STOWAGE_HOST_DEVICE void backward_loop(std::int64_t count, const T* gate, const T* up, const T* dy, T* dgate,
                                       T* dup) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const SwigluGradient<T> gradient = swiglu_gradient(gate[i], up[i], dy[i]);
    dgate[i] = gradient.gate;
    dup[i] = gradient.up;
  }
}

STOWAGE_CLONES void forward(std::int64_t count, const float* gate, const float* up, float* y) {
  forward_loop(count, gate, up, y);
}
void forward(std::int64_t count, const double* gate, const double* up, double* y) {
  forward_loop(count, gate, up, y);
}

STOWAGE_CLONES void backward(std::int64_t count, const float* gate, const float* up, const float* dy,
                             float* dgate, float* dup) {
  backward_loop(count, gate, up, dy, dgate, dup);
}
void backward(std::int64_t count, const double* gate, const double* up, const double* dy, double* dgate,
              double* dup) {
  backward_loop(count, gate, up, dy, dgate, dup);
}

// Calls each(begin, length) for blocks of [0, count), in parallel.
template <class Each>
void for_blocks(std::int64_t count, const Each& each) {
  parallel_for(count, chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += block) each(first, std::min(block, end - first));
  });
}

}  // namespace

template <class T>
void swiglu(std::int64_t count, const T* gate, const T* up, T* y) {
  for_blocks(count, [&](std::int64_t at, std::int64_t length) {
    Sum<T> gates[block];
    Sum<T> ups[block];
    Sum<T>* const to = target(y + at, ups);
    forward(length, loaded(length, gate + at, gates), loaded(length, up + at, ups), to);
    store(length, to, y + at);
  });
}

template <class T>
void swiglu_backward(std::int64_t count, const T* gate, const T* up, const T* dy, T* dgate, T* dup) {
  for_blocks(count, [&](std::int64_t at, std::int64_t length) {
    Sum<T> gates[block];
    Sum<T> ups[block];
    Sum<T> flow[block];
    Sum<T>* const to_gate = target(dgate + at, flow);
    Sum<T>* const to_up = target(dup + at, ups);
    backward(length, loaded(length, gate + at, gates), loaded(length, up + at, ups),
             loaded(length, dy + at, flow), to_gate, to_up);
    store(length, to_gate, dgate + at);
    store(length, to_up, dup + at);
  });
}

template void swiglu(std::int64_t, const float*, const float*, float*);
template void swiglu(std::int64_t, const double*, const double*, double*);
template void swiglu(std::int64_t, const Bfloat16*, const Bfloat16*, Bfloat16*);
template void swiglu(std::int64_t, const Float16*, const Float16*, Float16*);
template void swiglu_backward(std::int64_t, const float*, const float*, const float*, float*, float*);
template void swiglu_backward(std::int64_t, const double*, const double*, const double*, double*, double*);
template void swiglu_backward(std::int64_t, const Bfloat16*, const Bfloat16*, const Bfloat16*, Bfloat16*,
                              Bfloat16*);
template void swiglu_backward(std::int64_t, const Float16*, const Float16*, const Float16*, Float16*,
                              Float16*);

}  // namespace stowage::cpu
