#include "allocator/interpose/service.h"

#include "allocator/interpose/driver.h"
#include "allocator/interpose/replacements.h"

namespace stowage::interpose {

CUresult PassThrough::allocate(const AllocateCall& call) {
  switch (call.entry) {
    case Entry::mem_alloc:
      return call_real<decltype(cuMemAlloc_v2)>(call.entry, call.address, call.bytes);
    case Entry::mem_alloc_pitch:
      return call_real<decltype(cuMemAllocPitch_v2)>(call.entry, call.address, call.pitch, call.width,
                                                     call.height, call.element_bytes);
    case Entry::mem_alloc_managed:
      return call_real<decltype(cuMemAllocManaged)>(call.entry, call.address, call.bytes, call.flags);
    case Entry::mem_alloc_async:
    case Entry::mem_alloc_async_ptsz:
      return call_real<decltype(cuMemAllocAsync)>(call.entry, call.address, call.bytes, call.stream);
    case Entry::mem_alloc_from_pool_async:
    case Entry::mem_alloc_from_pool_async_ptsz:
      return call_real<decltype(cuMemAllocFromPoolAsync)>(call.entry, call.address, call.bytes, call.pool,
                                                          call.stream);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult PassThrough::free(const FreeCall& call) {
  switch (call.entry) {
    case Entry::mem_free:
      return call_real<decltype(cuMemFree_v2)>(call.entry, call.address);
    case Entry::mem_free_async:
    case Entry::mem_free_async_ptsz:
      return call_real<decltype(cuMemFreeAsync)>(call.entry, call.address, call.stream);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace stowage::interpose
