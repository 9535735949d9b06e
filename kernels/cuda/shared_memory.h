// A block's dynamic shared memory, 16-byte aligned; its size is LaunchShape::shared_bytes.
#pragma once

#ifdef STOWAGE_CUDA_SHIM
extern "C" void* stowage_shim_dynamic_shared();
#endif

namespace stowage::cuda {

template <class T>
__device__ inline T* dynamic_shared() {
#ifdef STOWAGE_CUDA_SHIM
  return static_cast<T*>(stowage_shim_dynamic_shared());
#else
  extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
#endif
}

}  // namespace stowage::cuda
