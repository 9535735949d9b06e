#include "kernels/cuda/swiglu.h"

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/pack_grid.h"
#include "kernels/math/swiglu.h"

namespace stowage::cuda {

template <class T>
__global__ void swiglu_kernel(std::int64_t count, const T* gate, const T* up, T* y, bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  const Pack<T> gates = load_pack(gate + i, count - i, aligned);
  Pack<T> pack = load_pack(up + i, count - i, aligned);
#pragma unroll
  for (int k = 0; k < pack_size<T>; ++k) pack.values[k] = stowage::swiglu(gates.values[k], pack.values[k]);
  store_pack(y + i, count - i, aligned, pack);
}

// dgate may be dy: a thread writes only elements that no other thread reads, and has read its own.
template <class T>
__global__ void swiglu_backward_kernel(std::int64_t count, const T* gate, const T* up, const T* dy, T* dgate,
                                       T* dup, bool aligned) {
  const std::int64_t i = pack_start(pack_size<T>);
  if (i >= count) return;
  const Pack<T> gates = load_pack(gate + i, count - i, aligned);
  Pack<T> ups = load_pack(up + i, count - i, aligned);
  Pack<T> flow = load_pack(dy + i, count - i, aligned);
#pragma unroll
  for (int k = 0; k < pack_size<T>; ++k) {
    const SwigluGradient<float> of = swiglu_gradient(gates.values[k], ups.values[k], flow.values[k]);
    flow.values[k] = of.gate;
    ups.values[k] = of.up;
  }
  store_pack(dgate + i, count - i, aligned, flow);
  store_pack(dup + i, count - i, aligned, ups);
}

template <class T>
void swiglu(std::int64_t count, const T* gate, const T* up, T* y, void* stream) {
  if (count == 0) return;
  const bool aligned = is_aligned(gate) && is_aligned(up) && is_aligned(y);
  launch(swiglu_kernel<T>, "swiglu", pack_shape<T>(count), stream, count, gate, up, y, aligned);
}

template <class T>
void swiglu_backward(std::int64_t count, const T* gate, const T* up, const T* dy, T* dgate, T* dup,
                     void* stream) {
  if (count == 0) return;
  const bool aligned =
      is_aligned(gate) && is_aligned(up) && is_aligned(dy) && is_aligned(dgate) && is_aligned(dup);
  launch(swiglu_backward_kernel<T>, "swiglu_backward", pack_shape<T>(count), stream, count, gate, up, dy,
         dgate, dup, aligned);
}

template void swiglu(std::int64_t, const float*, const float*, float*, void*);
template void swiglu(std::int64_t, const Bfloat16*, const Bfloat16*, Bfloat16*, void*);
template void swiglu(std::int64_t, const Float16*, const Float16*, Float16*, void*);
template void swiglu_backward(std::int64_t, const float*, const float*, const float*, float*, float*, void*);
template void swiglu_backward(std::int64_t, const Bfloat16*, const Bfloat16*, const Bfloat16*, Bfloat16*,
                              Bfloat16*, void*);
template void swiglu_backward(std::int64_t, const Float16*, const Float16*, const Float16*, Float16*,
                              Float16*, void*);

STOWAGE_CUDA_KERNEL(swiglu_kernel<float>);
STOWAGE_CUDA_KERNEL(swiglu_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(swiglu_kernel<Float16>);
STOWAGE_CUDA_KERNEL(swiglu_backward_kernel<float>);
STOWAGE_CUDA_KERNEL(swiglu_backward_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(swiglu_backward_kernel<Float16>);

}  // namespace stowage::cuda
