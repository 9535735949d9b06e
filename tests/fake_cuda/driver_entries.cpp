// cuGetProcAddress: each function by its name, from the version of CUDA on that introduced it.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fake_cuda/driver_memory.h"

#undef cuGetProcAddress
extern "C" CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags);

namespace {

struct DriverEntry {
  std::string_view name;  // without the suffix of its version
  int version;
  bool per_thread;
  void* function;
};

template <class Function>
DriverEntry entry(std::string_view name, int version, Function* function, bool per_thread = false) {
  return {name, version, per_thread, reinterpret_cast<void*>(function)};
}

struct Answer {
  void* function = nullptr;
  bool known = false;  // at some version
};

// The newest that is not too new; where the caller's default stream is its own, the variant for that if there
// is one.
Answer find_entry(std::string_view name, int version, bool per_thread) {
  static const DriverEntry entries[] = {
      entry("cuInit", 2000, cuInit),
      entry("cuDriverGetVersion", 2020, cuDriverGetVersion),
      entry("cuDeviceGetCount", 2000, cuDeviceGetCount),
      entry("cuDeviceGet", 2000, cuDeviceGet),
      entry("cuDeviceGetName", 2000, cuDeviceGetName),
      entry("cuDeviceGetAttribute", 2000, cuDeviceGetAttribute),
      entry("cuDeviceTotalMem", 3020, cuDeviceTotalMem_v2),
      entry("cuDeviceGetDefaultMemPool", 11020, cuDeviceGetDefaultMemPool),
      entry("cuDevicePrimaryCtxRetain", 7000, cuDevicePrimaryCtxRetain),
      entry("cuDevicePrimaryCtxRelease", 7000, fake_primary_ctx_release_v1),
      entry("cuDevicePrimaryCtxRelease", 11000, cuDevicePrimaryCtxRelease_v2),
      entry("cuDevicePrimaryCtxReset", 7000, fake_primary_ctx_reset_v1),
      entry("cuDevicePrimaryCtxReset", 11000, cuDevicePrimaryCtxReset_v2),
      entry("cuDevicePrimaryCtxGetState", 7000, cuDevicePrimaryCtxGetState),
      entry("cuCtxCreate", 13000, cuCtxCreate_v4),
      entry("cuCtxDestroy", 2000, fake_ctx_destroy_v1),
      entry("cuCtxDestroy", 4000, cuCtxDestroy_v2),
      entry("cuCtxGetCurrent", 4000, cuCtxGetCurrent),
      entry("cuCtxSetCurrent", 4000, cuCtxSetCurrent),
      entry("cuCtxGetDevice", 2000, cuCtxGetDevice),
      entry("cuCtxPushCurrent", 4000, cuCtxPushCurrent_v2),
      entry("cuCtxPopCurrent", 4000, cuCtxPopCurrent_v2),
      entry("cuCtxSynchronize", 2000, cuCtxSynchronize),
      entry("cuMemGetInfo", 3020, cuMemGetInfo_v2),
      entry("cuMemAlloc", 2000, fake_mem_alloc_v1),
      entry("cuMemAlloc", 3020, cuMemAlloc_v2),
      entry("cuMemAlloc", 99000, fake_mem_alloc_of_the_future),
      entry("cuMemAllocPitch", 3020, cuMemAllocPitch_v2),
      entry("cuMemAllocManaged", 6000, cuMemAllocManaged),
      entry("cuMemAllocAsync", 11020, cuMemAllocAsync),
      entry("cuMemAllocAsync", 11020, cuMemAllocAsync_ptsz, true),
      entry("cuMemAllocFromPoolAsync", 11020, cuMemAllocFromPoolAsync),
      entry("cuMemAllocFromPoolAsync", 11020, cuMemAllocFromPoolAsync_ptsz, true),
      entry("cuMemFree", 3020, cuMemFree_v2),
      entry("cuMemFreeAsync", 11020, cuMemFreeAsync),
      entry("cuMemFreeAsync", 11020, cuMemFreeAsync_ptsz, true),
      entry("cuMemGetAddressRange", 3020, cuMemGetAddressRange_v2),
      entry("cuPointerGetAttribute", 4000, cuPointerGetAttribute),
      entry("cuPointerGetAttributes", 7000, cuPointerGetAttributes),
      entry("cuMemHostAlloc", 2020, cuMemHostAlloc),
      entry("cuMemHostGetDevicePointer", 3020, cuMemHostGetDevicePointer_v2),
      entry("cuMemFreeHost", 2000, cuMemFreeHost),
      entry("cuMemPoolCreate", 11020, cuMemPoolCreate),
      entry("cuMemPoolDestroy", 11020, cuMemPoolDestroy),
      entry("cuIpcGetMemHandle", 4010, cuIpcGetMemHandle),
      entry("cuIpcOpenMemHandle", 4010, fake_ipc_open_v1),
      entry("cuIpcOpenMemHandle", 11000, cuIpcOpenMemHandle_v2),
      entry("cuIpcCloseMemHandle", 4010, cuIpcCloseMemHandle),
      entry("cuStreamCreate", 2000, cuStreamCreate),
      entry("cuStreamDestroy", 2000, fake_stream_destroy_v1),
      entry("cuStreamDestroy", 4000, cuStreamDestroy_v2),
      entry("cuStreamGetCtx", 9020, cuStreamGetCtx),
      entry("cuStreamGetCtx", 9020, cuStreamGetCtx_ptsz, true),
      entry("cuThreadExchangeStreamCaptureMode", 10010, cuThreadExchangeStreamCaptureMode),
      entry("cuEventCreate", 2000, cuEventCreate),
      entry("cuEventRecord", 2000, cuEventRecord),
      entry("cuEventRecord", 7000, cuEventRecord_ptsz, true),
      entry("cuEventQuery", 2000, cuEventQuery),
      entry("cuEventSynchronize", 2000, cuEventSynchronize),
      entry("cuEventDestroy", 4000, cuEventDestroy_v2),
      entry("cuStreamIsCapturing", 10000, cuStreamIsCapturing),
      entry("cuStreamIsCapturing", 10000, cuStreamIsCapturing_ptsz, true),
      entry("cuStreamBeginCapture", 10010, cuStreamBeginCapture_v2),
      entry("cuStreamBeginCapture", 10010, cuStreamBeginCapture_v2_ptsz, true),
      entry("cuStreamEndCapture", 10000, cuStreamEndCapture),
      entry("cuStreamEndCapture", 10000, cuStreamEndCapture_ptsz, true),
      entry("cuGetErrorName", 6000, cuGetErrorName),
      entry("cuGetErrorString", 6000, cuGetErrorString),
      entry("cuMemGetAllocationGranularity", 10020, cuMemGetAllocationGranularity),
      entry("cuMemAddressReserve", 10020, cuMemAddressReserve),
      entry("cuMemAddressFree", 10020, cuMemAddressFree),
      entry("cuMemCreate", 10020, cuMemCreate),
      entry("cuMemRelease", 10020, cuMemRelease),
      entry("cuMemRetainAllocationHandle", 11000, cuMemRetainAllocationHandle),
      entry("cuMemMap", 10020, cuMemMap),
      entry("cuMemUnmap", 10020, cuMemUnmap),
      entry("cuMemSetAccess", 10020, cuMemSetAccess),
      entry("cuGetProcAddress", 11030, cuGetProcAddress),
      entry("cuGetProcAddress", 12000, cuGetProcAddress_v2),
  };
  Answer answer;
  int best = 0;
  for (const DriverEntry& candidate : entries) {
    if (candidate.name != name) continue;
    answer.known = true;
    const int rank = candidate.version * 2 + (candidate.per_thread ? 1 : 0);
    if (candidate.version > version || (candidate.per_thread && !per_thread) || rank < best) continue;
    best = rank;
    answer.function = candidate.function;
  }
  return answer;
}

// Tests read what was asked from the file that STOWAGE_FAKE_CUDA_QUERIES names.
void log_query(const char* symbol, int version, cuuint64_t flags) {
  const char* const path = std::getenv("STOWAGE_FAKE_CUDA_QUERIES");
  if (path == nullptr || *symbol == '\0') return;
  std::FILE* const file = std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file, "%s %d %llu\n", symbol, version, static_cast<unsigned long long>(flags));
  std::fclose(file);
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* result) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  log_query(symbol, version, flags);
  const Answer answer =
      find_entry(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  *function = answer.function;
  if (result != nullptr) {
    *result = answer.function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : answer.known             ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                         : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return answer.function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
}
