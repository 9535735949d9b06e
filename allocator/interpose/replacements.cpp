#include "allocator/interpose/replacements.h"

#include "allocator/interpose/driver.h"

namespace stowage::interpose {
namespace {

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

void* replacement(Entry entry) {
  // Rows stand in the order of Entry.
  static const std::array<void*, replaced_count> table = {
      address_of(cuGetProcAddress),
      address_of(cuGetProcAddress_v2),
      address_of(cuMemAlloc_v2),
      address_of(cuMemAllocPitch_v2),
      address_of(cuMemAllocManaged),
      address_of(cuMemAllocAsync),
      address_of(cuMemAllocAsync_ptsz),
      address_of(cuMemAllocFromPoolAsync),
      address_of(cuMemAllocFromPoolAsync_ptsz),
      address_of(cuMemFree_v2),
      address_of(cuMemFreeAsync),
      address_of(cuMemFreeAsync_ptsz),
      address_of(cuMemGetInfo_v2),
      address_of(cuDeviceTotalMem_v2),
      address_of(cuMemCreate),
      address_of(cuMemRelease),
      address_of(cuMemRetainAllocationHandle),
      address_of(cuMemMap),
      address_of(cuMemUnmap),
      address_of(cuMemPoolCreate),
      address_of(cuMemPoolDestroy),
      address_of(cuIpcGetMemHandle),
      address_of(cuIpcOpenMemHandle),
      address_of(cuIpcOpenMemHandle_v2),
      address_of(cuIpcCloseMemHandle),
      address_of(cuMemGetAddressRange_v2),
      address_of(cuPointerGetAttribute),
      address_of(cuPointerGetAttributes),
      address_of(cuCtxDestroy),
      address_of(cuCtxDestroy_v2),
      address_of(cuDevicePrimaryCtxRetain),
      address_of(cuDevicePrimaryCtxRelease),
      address_of(cuDevicePrimaryCtxRelease_v2),
      address_of(cuDevicePrimaryCtxReset),
      address_of(cuDevicePrimaryCtxReset_v2),
      address_of(cuStreamDestroy),
      address_of(cuStreamDestroy_v2),
      address_of(cuStreamBeginCapture),
      address_of(cuStreamBeginCapture_ptsz),
      address_of(cuStreamBeginCapture_v2),
      address_of(cuStreamBeginCapture_v2_ptsz),
      address_of(cuStreamBeginCaptureToGraph),
      address_of(cuStreamBeginCaptureToGraph_ptsz),
      address_of(cuStreamEndCapture),
      address_of(cuStreamEndCapture_ptsz),
  };
  return table[static_cast<std::size_t>(entry)];
}

}  // namespace stowage::interpose
