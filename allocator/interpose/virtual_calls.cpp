// Virtual memory management and pools: physical memory counts from its creation until neither handle nor
// mapping is left of it.
#include "allocator/interpose/driver.h"
#include "allocator/interpose/places.h"
#include "allocator/interpose/process.h"
#include "allocator/interpose/replacements.h"

using stowage::interpose::Block;
using stowage::interpose::call_real;
using stowage::interpose::Entry;
using stowage::interpose::Kind;
using stowage::interpose::ledger;
using stowage::interpose::Outermost;
using stowage::interpose::places;
using stowage::interpose::program_memory;
using stowage::interpose::service;

namespace {

bool on_device(const CUmemLocation& location) { return location.type == CU_MEM_LOCATION_TYPE_DEVICE; }

Block physical_block(const CUmemAllocationProp& prop, size_t bytes) {
  const bool here = on_device(prop.location);
  return {.kind = here ? Kind::physical : Kind::host_physical,
          .device = here ? prop.location.id : 0,
          .bytes = bytes};
}

}  // namespace

extern "C" {

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  const Outermost outermost(__builtin_return_address(0));
  const auto create = [&] {
    return call_real<decltype(cuMemCreate)>(Entry::mem_create, handle, bytes, prop, flags);
  };
  if (!outermost || prop == nullptr) return create();
  const Block block = physical_block(*prop, bytes);
  if (!ledger().admit(block)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = create();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && service().make_room()) result = create();
  if (result == CUDA_SUCCESS) {
    ledger().created(*handle, block);
  } else {
    ledger().failed(block, result);
  }
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Outermost outermost(__builtin_return_address(0));
  // Releases in the ledger before the driver does: the handle may then belong to another thread at once.
  if (outermost) ledger().released(handle);
  return call_real<decltype(cuMemRelease)>(Entry::mem_release, handle);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const Outermost outermost(__builtin_return_address(0));
  // Memory of the service has no handle of the program's cuMemCreate.
  if (outermost && program_memory(reinterpret_cast<CUdeviceptr>(address))) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      call_real<decltype(cuMemRetainAllocationHandle)>(Entry::mem_retain_allocation_handle, handle, address);
  if (outermost && result == CUDA_SUCCESS) ledger().retained(*handle);
  return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result =
      call_real<decltype(cuMemMap)>(Entry::mem_map, address, bytes, offset, handle, flags);
  if (outermost && result == CUDA_SUCCESS) ledger().mapped(address, bytes, handle);
  return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result = call_real<decltype(cuMemUnmap)>(Entry::mem_unmap, address, bytes);
  if (outermost && result == CUDA_SUCCESS) ledger().unmapped(address, bytes);
  return result;
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result = call_real<decltype(cuMemPoolCreate)>(Entry::mem_pool_create, pool, props);
  if (outermost && result == CUDA_SUCCESS) {
    places().pool_created(*pool, {!on_device(props->location), props->location.id});
  }
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const Outermost outermost(__builtin_return_address(0));
  if (outermost) places().pool_destroyed(pool);
  return call_real<decltype(cuMemPoolDestroy)>(Entry::mem_pool_destroy, pool);
}
}
