#include "kernels/cuda/elementwise.h"

#include <cmath>

#include "kernels/cuda/dropout_mask.h"
#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/pack_grid.h"
#include "kernels/math/gelu.h"

namespace stowage::cuda {

template <class T>
__global__ void add_kernel(std::int64_t count, const T* a, const T* b, T* y, bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  Pack<T> left = load_pack(a + i, count - i, aligned);
  const Pack<T> right = load_pack(b + i, count - i, aligned);
  for (int k = 0; k < pack_size<T>; ++k) left.values[k] += right.values[k];
  store_pack(y + i, count - i, aligned, left);
}

// The elements that a thread of tree_sum adds up: a pack in T, or one f64.
template <class T>
struct Addend {
  static constexpr int size = pack_size<T>;
  SixteenBytes bytes;

  __device__ static Addend load(const T* x, std::int64_t count, bool aligned) {
    return {load_words(x, count, aligned)};
  }
  __device__ void store(T* x, std::int64_t count, bool aligned) const {
    store_pack(x, count, aligned, unpack(bytes, x));
  }
  __device__ Addend plus(const Addend& other) const {
    const T* const type = nullptr;
    Pack<T> left = unpack(bytes, type);
    const Pack<T> right = unpack(other.bytes, type);
    for (int k = 0; k < size; ++k) left.values[k] += right.values[k];
    return {packed(left)};
  }
};
template <>
struct Addend<double> {
  static constexpr int size = 1;
  double value;

  __device__ static Addend load(const double* x, std::int64_t count, bool) { return {count > 0 ? *x : 0}; }
  __device__ void store(double* x, std::int64_t, bool) const { *x = value; }
  __device__ Addend plus(const Addend& other) const { return {value + other.value}; }
};

inline constexpr int tree_levels = 9;  // levels above the pairs of rows

// A binary counter of pairs of rows: finished[level] is the sum of 2^level pairs. Its levels are unrolled, so
// that it stays in registers.
template <class T>
__global__ void tree_sum_kernel(std::int64_t rows, std::int64_t length, std::int64_t count, const T* a, T* y,
                                bool aligned) {
  const std::int64_t i = pack_start(Addend<T>::size);
  if (i >= length) return;
  Addend<T> finished[tree_levels] = {};
  Addend<T> sum = {};
  for (std::int64_t row = 0; row < rows; row += 2) {
    const T* const x = a + row * length + i;
    sum = Addend<T>::load(x, count - i, aligned);
    if (row + 1 < rows) sum = sum.plus(Addend<T>::load(x + length, count - i, aligned));
    bool carried = true;  // used instead of a break, with which the loop would not be unrolled
#pragma unroll
    for (int level = 0; level < tree_levels; ++level) {
      const bool joins = (row >> (level + 1) & 1) != 0;
      if (carried && joins) sum = finished[level].plus(sum);
      if (carried && !joins) finished[level] = sum;
      carried = carried && joins;
    }
  }
  sum.store(y + i, length - i, aligned);
}

// Tree sum of the pack that begins at element `first`.
template <class T>
__device__ void drop(const DropoutMask& mask, std::int64_t first, Pack<T>& pack) {
  for (int group = 0; group < pack_size<T>; group += 4) {
    const unsigned kept = mask.kept_of_four(static_cast<std::uint64_t>(first + group));
    for (int i = 0; i < 4; ++i) {
      float& value = pack.values[group + i];
      value = (kept >> i & 1U) != 0 ? value * mask.scale() : 0.0F;
    }
  }
}

template <class T>
__global__ void add_dropout_kernel(DropoutMask mask, std::int64_t count, const T* a, const T* b, T* y,
                                   bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  const Pack<T> left = load_pack(a + i, count - i, aligned);
  Pack<T> right = load_pack(b + i, count - i, aligned);
  drop(mask, i, right);
  for (int k = 0; k < pack_size<T>; ++k) right.values[k] += left.values[k];
  store_pack(y + i, count - i, aligned, right);
}

template <class T, class Form>
__global__ void gelu_kernel(std::int64_t count, const T* x, T* y, bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  Pack<T> pack = load_pack(x + i, count - i, aligned);
#pragma unroll
  for (int k = 0; k < pack_size<T>; ++k) pack.values[k] = Form::value(pack.values[k]);
  store_pack(y + i, count - i, aligned, pack);
}

template <class T, class Form>
__global__ void gelu_backward_kernel(std::int64_t count, const T* x, const T* dy, T* dx, bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  const Pack<T> at = load_pack(x + i, count - i, aligned);
  Pack<T> pack = load_pack(dy + i, count - i, aligned);
  for (int k = 0; k < pack_size<T>; ++k) pack.values[k] *= Form::derivative(at.values[k]);
  store_pack(dx + i, count - i, aligned, pack);
}

template <class T>
__global__ void tanh_kernel(std::int64_t count, const T* x, T* y, bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  Pack<T> pack = load_pack(x + i, count - i, aligned);
  for (float& value : pack.values) value = std::tanh(value);
  store_pack(y + i, count - i, aligned, pack);
}

template <class T>
__global__ void tanh_backward_kernel(std::int64_t count, const T* y, const T* dy, T* dx, bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  const Pack<T> at = load_pack(y + i, count - i, aligned);
  Pack<T> pack = load_pack(dy + i, count - i, aligned);
  for (int k = 0; k < pack_size<T>; ++k) pack.values[k] *= (1 - at.values[k]) * (1 + at.values[k]);
  store_pack(dx + i, count - i, aligned, pack);
}

template <class T>
__global__ void dropout_kernel(DropoutMask mask, std::int64_t count, const T* x, T* y, bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  Pack<T> pack = load_pack(x + i, count - i, aligned);
  drop(mask, i, pack);
  store_pack(y + i, count - i, aligned, pack);
}

template <class T>
__global__ void narrow_kernel(std::int64_t count, const float* x, T* y, bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  Pack<T> pack;
  load_packs(x + i, count - i, aligned, pack.values);
  store_pack(y + i, count - i, aligned, pack);
}

template <class T>
void add(std::int64_t count, const T* a, const T* b, T* y, void* stream) {
  if (count == 0) return;
  const bool aligned = is_aligned(a) && is_aligned(b) && is_aligned(y);
  launch(add_kernel<T>, "add", pack_shape<T>(count), stream, count, a, b, y, aligned);
}

template <class T>
void tree_sum(std::int64_t rows, std::int64_t length, std::int64_t count, const T* a, T* y, void* stream) {
  if (length == 0) return;
  const bool aligned = rows_are_aligned<T>(length, a) && is_aligned(y);
  const std::int64_t blocks =
      blocks_for(length, static_cast<std::int64_t>(Addend<T>::size) * elementwise_threads);
  launch(tree_sum_kernel<T>, "tree_sum", {{blocks}, elementwise_threads}, stream, rows, length, count, a, y,
         aligned);
}

template <class T>
void add_dropout(const RandomStream& random, double probability, std::int64_t count, const T* a, const T* b,
                 T* y, void* stream) {
  if (count == 0) return;
  const bool aligned = is_aligned(a) && is_aligned(b) && is_aligned(y);
  launch(add_dropout_kernel<T>, "add", pack_shape<T>(count), stream, DropoutMask(random, probability), count,
         a, b, y, aligned);
}

template <class T>
void gelu(GeluForm form, std::int64_t count, const T* x, T* y, void* stream) {
  if (count == 0) return;
  const bool aligned = is_aligned(x) && is_aligned(y);
  const auto kernel = form == GeluForm::tanh ? gelu_kernel<T, GeluTanh> : gelu_kernel<T, GeluErf>;
  launch(kernel, "gelu", pack_shape<T>(count), stream, count, x, y, aligned);
}

template <class T>
void gelu_backward(GeluForm form, std::int64_t count, const T* x, const T* dy, T* dx, void* stream) {
  if (count == 0) return;
  const bool aligned = is_aligned(x) && is_aligned(dy) && is_aligned(dx);
  const auto kernel =
      form == GeluForm::tanh ? gelu_backward_kernel<T, GeluTanh> : gelu_backward_kernel<T, GeluErf>;
  launch(kernel, "gelu_backward", pack_shape<T>(count), stream, count, x, dy, dx, aligned);
}

template <class T>
void tanh(std::int64_t count, const T* x, T* y, void* stream) {
  if (count == 0) return;
  launch(tanh_kernel<T>, "tanh", pack_shape<T>(count), stream, count, x, y, is_aligned(x) && is_aligned(y));
}

template <class T>
void tanh_backward(std::int64_t count, const T* y, const T* dy, T* dx, void* stream) {
  if (count == 0) return;
  const bool aligned = is_aligned(y) && is_aligned(dy) && is_aligned(dx);
  launch(tanh_backward_kernel<T>, "tanh_backward", pack_shape<T>(count), stream, count, y, dy, dx, aligned);
}

template <class T>
void dropout(const RandomStream& random, double probability, std::int64_t count, const T* x, T* y,
             void* stream) {
  if (count == 0) return;
  const bool aligned = is_aligned(x) && is_aligned(y);
  launch(dropout_kernel<T>, "dropout", pack_shape<T>(count), stream, DropoutMask(random, probability), count,
         x, y, aligned);
}

template <class T>
void narrow(std::int64_t count, const float* x, T* y, void* stream) {
  if (count == 0) return;
  launch(narrow_kernel<T>, "narrow", pack_shape<T>(count), stream, count, x, y,
         is_aligned(x) && is_aligned(y));
}

template void narrow(std::int64_t, const float*, Bfloat16*, void*);
template void narrow(std::int64_t, const float*, Float16*, void*);
template void add(std::int64_t, const float*, const float*, float*, void*);
template void add(std::int64_t, const Bfloat16*, const Bfloat16*, Bfloat16*, void*);
template void tree_sum(std::int64_t, std::int64_t, std::int64_t, const float*, float*, void*);
template void tree_sum(std::int64_t, std::int64_t, std::int64_t, const Bfloat16*, Bfloat16*, void*);
template void tree_sum(std::int64_t, std::int64_t, std::int64_t, const Float16*, Float16*, void*);
template void tree_sum(std::int64_t, std::int64_t, std::int64_t, const double*, double*, void*);
template void add_dropout(const RandomStream&, double, std::int64_t, const float*, const float*, float*,
                          void*);
template void add_dropout(const RandomStream&, double, std::int64_t, const Bfloat16*, const Bfloat16*,
                          Bfloat16*, void*);
template void gelu(GeluForm, std::int64_t, const float*, float*, void*);
template void gelu(GeluForm, std::int64_t, const Bfloat16*, Bfloat16*, void*);
template void gelu_backward(GeluForm, std::int64_t, const float*, const float*, float*, void*);
template void gelu_backward(GeluForm, std::int64_t, const Bfloat16*, const Bfloat16*, Bfloat16*, void*);
template void tanh(std::int64_t, const float*, float*, void*);
template void tanh(std::int64_t, const Bfloat16*, Bfloat16*, void*);
template void tanh_backward(std::int64_t, const float*, const float*, float*, void*);
template void tanh_backward(std::int64_t, const Bfloat16*, const Bfloat16*, Bfloat16*, void*);
template void dropout(const RandomStream&, double, std::int64_t, const float*, float*, void*);
template void dropout(const RandomStream&, double, std::int64_t, const Bfloat16*, Bfloat16*, void*);
template void add(std::int64_t, const Float16*, const Float16*, Float16*, void*);
template void add_dropout(const RandomStream&, double, std::int64_t, const Float16*, const Float16*, Float16*,
                          void*);
template void gelu(GeluForm, std::int64_t, const Float16*, Float16*, void*);
template void gelu_backward(GeluForm, std::int64_t, const Float16*, const Float16*, Float16*, void*);
template void tanh(std::int64_t, const Float16*, Float16*, void*);
template void tanh_backward(std::int64_t, const Float16*, const Float16*, Float16*, void*);
template void dropout(const RandomStream&, double, std::int64_t, const Float16*, Float16*, void*);

STOWAGE_CUDA_KERNEL(narrow_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(narrow_kernel<Float16>);
STOWAGE_CUDA_KERNEL(add_kernel<float>);
STOWAGE_CUDA_KERNEL(add_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(add_kernel<Float16>);
STOWAGE_CUDA_KERNEL(tree_sum_kernel<float>);
STOWAGE_CUDA_KERNEL(tree_sum_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(tree_sum_kernel<Float16>);
STOWAGE_CUDA_KERNEL(tree_sum_kernel<double>);
STOWAGE_CUDA_KERNEL(add_dropout_kernel<float>);
STOWAGE_CUDA_KERNEL(add_dropout_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(add_dropout_kernel<Float16>);
STOWAGE_CUDA_KERNEL(gelu_kernel<float, GeluTanh>);
STOWAGE_CUDA_KERNEL(gelu_kernel<float, GeluErf>);
STOWAGE_CUDA_KERNEL(gelu_kernel<Bfloat16, GeluTanh>);
STOWAGE_CUDA_KERNEL(gelu_kernel<Float16, GeluTanh>);
STOWAGE_CUDA_KERNEL(gelu_kernel<Bfloat16, GeluErf>);
STOWAGE_CUDA_KERNEL(gelu_kernel<Float16, GeluErf>);
STOWAGE_CUDA_KERNEL(gelu_backward_kernel<float, GeluTanh>);
STOWAGE_CUDA_KERNEL(gelu_backward_kernel<float, GeluErf>);
STOWAGE_CUDA_KERNEL(gelu_backward_kernel<Bfloat16, GeluTanh>);
STOWAGE_CUDA_KERNEL(gelu_backward_kernel<Float16, GeluTanh>);
STOWAGE_CUDA_KERNEL(gelu_backward_kernel<Bfloat16, GeluErf>);
STOWAGE_CUDA_KERNEL(gelu_backward_kernel<Float16, GeluErf>);
STOWAGE_CUDA_KERNEL(tanh_kernel<float>);
STOWAGE_CUDA_KERNEL(tanh_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(tanh_kernel<Float16>);
STOWAGE_CUDA_KERNEL(tanh_backward_kernel<float>);
STOWAGE_CUDA_KERNEL(tanh_backward_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(tanh_backward_kernel<Float16>);
STOWAGE_CUDA_KERNEL(dropout_kernel<float>);
STOWAGE_CUDA_KERNEL(dropout_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(dropout_kernel<Float16>);

}  // namespace stowage::cuda
