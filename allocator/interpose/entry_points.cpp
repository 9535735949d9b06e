#include "allocator/interpose/entry_points.h"

namespace stowage::interpose {
namespace {

// Rows stand in the order of Entry. Versions are those of the PFN_ types in cudaTypedefs.h.
constexpr std::array<EntryPoint, entry_count> table = {{
    {"cuGetProcAddress", "cuGetProcAddress", 11030, false, false},
    {"cuGetProcAddress_v2", "cuGetProcAddress", 12000, false, false},
    {"cuMemAlloc_v2", "cuMemAlloc", 3020, false, true},
    {"cuMemAllocPitch_v2", "cuMemAllocPitch", 3020, false, true},
    {"cuMemAllocManaged", "cuMemAllocManaged", 6000, false, true},
    {"cuMemAllocAsync", "cuMemAllocAsync", 11020, false, true},
    {"cuMemAllocAsync_ptsz", "cuMemAllocAsync", 11020, true, true},
    {"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", 11020, false, true},
    {"cuMemAllocFromPoolAsync_ptsz", "cuMemAllocFromPoolAsync", 11020, true, true},
    {"cuMemFree_v2", "cuMemFree", 3020, false, false},
    {"cuMemFreeAsync", "cuMemFreeAsync", 11020, false, false},
    {"cuMemFreeAsync_ptsz", "cuMemFreeAsync", 11020, true, false},
    {"cuMemGetInfo_v2", "cuMemGetInfo", 3020, false, false},
    {"cuDeviceTotalMem_v2", "cuDeviceTotalMem", 3020, false, false},
    {"cuMemCreate", "cuMemCreate", 10020, false, true},
    {"cuMemRelease", "cuMemRelease", 10020, false, false},
    {"cuMemRetainAllocationHandle", "cuMemRetainAllocationHandle", 11000, false, false},
    {"cuMemMap", "cuMemMap", 10020, false, false},
    {"cuMemUnmap", "cuMemUnmap", 10020, false, false},
    {"cuMemPoolCreate", "cuMemPoolCreate", 11020, false, false},
    {"cuMemPoolDestroy", "cuMemPoolDestroy", 11020, false, false},
    {"cuIpcGetMemHandle", "cuIpcGetMemHandle", 4010, false, false},
    {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle", 4010, false, false},
    {"cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle", 11000, false, false},
    {"cuIpcCloseMemHandle", "cuIpcCloseMemHandle", 4010, false, false},
    {"cuMemGetAddressRange_v2", "cuMemGetAddressRange", 3020, false, false},
    {"cuPointerGetAttribute", "cuPointerGetAttribute", 4000, false, false},
    {"cuPointerGetAttributes", "cuPointerGetAttributes", 7000, false, false},
    {"cuCtxDestroy", "cuCtxDestroy", 2000, false, false},
    {"cuCtxDestroy_v2", "cuCtxDestroy", 4000, false, false},
    {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 7000, false, false},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease", 7000, false, false},
    {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease", 11000, false, false},
    {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset", 7000, false, false},
    {"cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset", 11000, false, false},
    {"cuStreamDestroy", "cuStreamDestroy", 2000, false, false},
    {"cuStreamDestroy_v2", "cuStreamDestroy", 4000, false, false},
    {"cuStreamBeginCapture", "cuStreamBeginCapture", 10000, false, false},
    {"cuStreamBeginCapture_ptsz", "cuStreamBeginCapture", 10000, true, false},
    {"cuStreamBeginCapture_v2", "cuStreamBeginCapture", 10010, false, false},
    {"cuStreamBeginCapture_v2_ptsz", "cuStreamBeginCapture", 10010, true, false},
    {"cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph", 12030, false, false},
    {"cuStreamBeginCaptureToGraph_ptsz", "cuStreamBeginCaptureToGraph", 12030, true, false},
    {"cuStreamEndCapture", "cuStreamEndCapture", 10000, false, false},
    {"cuStreamEndCapture_ptsz", "cuStreamEndCapture", 10000, true, false},
    {"cuCtxGetCurrent", "cuCtxGetCurrent", 4000, false, false},
    {"cuCtxGetDevice", "cuCtxGetDevice", 2000, false, false},
    {"cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxGetState", 7000, false, false},
    {"cuStreamIsCapturing", "cuStreamIsCapturing", 10000, false, false},
    {"cuStreamIsCapturing_ptsz", "cuStreamIsCapturing", 10000, true, false},
    {"cuCtxPushCurrent_v2", "cuCtxPushCurrent", 4000, false, false},
    {"cuCtxPopCurrent_v2", "cuCtxPopCurrent", 4000, false, false},
    {"cuCtxSynchronize", "cuCtxSynchronize", 2000, false, false},
    {"cuDeviceGetAttribute", "cuDeviceGetAttribute", 2000, false, false},
    {"cuDeviceGetCount", "cuDeviceGetCount", 2000, false, false},
    {"cuEventCreate", "cuEventCreate", 2000, false, false},
    {"cuEventRecord", "cuEventRecord", 2000, false, false},
    {"cuEventRecord_ptsz", "cuEventRecord", 7000, true, false},
    {"cuEventQuery", "cuEventQuery", 2000, false, false},
    {"cuEventSynchronize", "cuEventSynchronize", 2000, false, false},
    {"cuEventDestroy_v2", "cuEventDestroy", 4000, false, false},
    {"cuMemAddressReserve", "cuMemAddressReserve", 10020, false, false},
    {"cuMemAddressFree", "cuMemAddressFree", 10020, false, false},
    {"cuMemSetAccess", "cuMemSetAccess", 10020, false, false},
    {"cuMemGetAllocationGranularity", "cuMemGetAllocationGranularity", 10020, false, false},
    {"cuMemHostAlloc", "cuMemHostAlloc", 2020, false, false},
    {"cuMemHostGetDevicePointer_v2", "cuMemHostGetDevicePointer", 3020, false, false},
    {"cuMemFreeHost", "cuMemFreeHost", 2000, false, false},
    {"cuStreamGetCtx", "cuStreamGetCtx", 9020, false, false},
    {"cuStreamGetCtx_ptsz", "cuStreamGetCtx", 9020, true, false},
    {"cuThreadExchangeStreamCaptureMode", "cuThreadExchangeStreamCaptureMode", 10010, false, false},
}};

}  // namespace

const EntryPoint& entry_point(Entry entry) { return table[static_cast<std::size_t>(entry)]; }

Entry replaced_symbol(std::string_view symbol) {
  if (!symbol.starts_with("cu")) return Entry::count;
  for (std::size_t i = 0; i < replaced_count; ++i) {
    if (table[i].symbol == symbol) return static_cast<Entry>(i);
  }
  return Entry::count;
}

}  // namespace stowage::interpose
