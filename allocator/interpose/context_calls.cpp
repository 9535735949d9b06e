// Calls that end contexts and streams, with the memory that ends with them, and calls that share memory
// between processes.
#include <cstdint>

#include "allocator/interpose/captures.h"
#include "allocator/interpose/driver.h"
#include "allocator/interpose/places.h"
#include "allocator/interpose/process.h"
#include "allocator/interpose/replacements.h"

using stowage::interpose::call_real;
using stowage::interpose::captures;
using stowage::interpose::Entry;
using stowage::interpose::ledger;
using stowage::interpose::Outermost;
using stowage::interpose::places;
using stowage::interpose::program_memory;
using stowage::interpose::service;
using stowage::interpose::spill;

namespace {

std::uint64_t handle_number(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }

CUresult destroy_context(Entry entry, CUcontext context, const void* caller) {
  const Outermost outermost(caller);
  const CUresult result = call_real<decltype(cuCtxDestroy_v2)>(entry, context);
  if (outermost && result == CUDA_SUCCESS) {
    captures().context_gone(context);
    spill().context_gone(handle_number(context));
    ledger().context_gone(handle_number(context));
  }
  return result;
}

void device_is_reset(CUdevice device) {
  const std::uint64_t primary = places().primary_context(device);
  captures().context_gone(reinterpret_cast<CUcontext>(primary));  // NOLINT(performance-no-int-to-ptr)
  spill().device_reset(device, primary);
  ledger().device_reset(device, primary);
}

CUresult reset_primary(Entry entry, CUdevice device, const void* caller) {
  const Outermost outermost(caller);
  if (outermost) service().primary_context_ends(device);
  const CUresult result = call_real<decltype(cuDevicePrimaryCtxReset_v2)>(entry, device);
  if (outermost && result == CUDA_SUCCESS) device_is_reset(device);
  return result;
}

CUresult release_primary(Entry entry, CUdevice device, const void* caller) {
  const Outermost outermost(caller);
  const CUresult result = call_real<decltype(cuDevicePrimaryCtxRelease_v2)>(entry, device);
  if (!outermost || result != CUDA_SUCCESS) return result;
  unsigned flags = 0;
  int active = 1;
  call_real<decltype(cuDevicePrimaryCtxGetState)>(Entry::primary_ctx_get_state, device, &flags, &active);
  if (active != 0) return result;
  service().primary_context_ends(device);
  device_is_reset(device);
  return result;
}

CUresult destroy_stream(Entry entry, CUstream stream, const void* caller) {
  const Outermost outermost(caller);
  // Forgets the stream before the driver does: a new stream may get its handle at once.
  if (outermost) {
    ledger().stream_gone(handle_number(stream));
    captures().stream_gone(stream);
  }
  return call_real<decltype(cuStreamDestroy_v2)>(entry, stream);
}

CUresult open_shared(Entry entry, CUdeviceptr* address, CUipcMemHandle handle, unsigned flags,
                     const void* caller) {
  const Outermost outermost(caller);
  const CUresult result = call_real<decltype(cuIpcOpenMemHandle_v2)>(entry, address, handle, flags);
  if (outermost && result == CUDA_SUCCESS) ledger().note("open", *address);
  return result;
}

}  // namespace

extern "C" {

CUresult cuCtxDestroy(CUcontext context) {
  return destroy_context(Entry::ctx_destroy_v1, context, __builtin_return_address(0));
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return destroy_context(Entry::ctx_destroy, context, __builtin_return_address(0));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result =
      call_real<decltype(cuDevicePrimaryCtxRetain)>(Entry::primary_ctx_retain, context, device);
  if (outermost && result == CUDA_SUCCESS) places().primary_context_is(device, handle_number(*context));
  return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return release_primary(Entry::primary_ctx_release_v1, device, __builtin_return_address(0));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return release_primary(Entry::primary_ctx_release, device, __builtin_return_address(0));
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return reset_primary(Entry::primary_ctx_reset_v1, device, __builtin_return_address(0));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return reset_primary(Entry::primary_ctx_reset, device, __builtin_return_address(0));
}

CUresult cuStreamDestroy(CUstream stream) {
  return destroy_stream(Entry::stream_destroy_v1, stream, __builtin_return_address(0));
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return destroy_stream(Entry::stream_destroy, stream, __builtin_return_address(0));
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  const Outermost outermost(__builtin_return_address(0));
  if (outermost && program_memory(address)) {  // the error for any memory that no other process can open
    ledger().note("not_exported", address, spill().find(address) ? "place=host" : "place=cache",
                  CUDA_ERROR_INVALID_VALUE);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = call_real<decltype(cuIpcGetMemHandle)>(Entry::ipc_get_mem_handle, handle, address);
  if (outermost && result == CUDA_SUCCESS) ledger().note("export", address);
  return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open_shared(Entry::ipc_open_mem_handle_v1, address, handle, flags, __builtin_return_address(0));
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open_shared(Entry::ipc_open_mem_handle, address, handle, flags, __builtin_return_address(0));
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result = call_real<decltype(cuIpcCloseMemHandle)>(Entry::ipc_close_mem_handle, address);
  if (outermost && result == CUDA_SUCCESS) ledger().note("close", address);
  return result;
}
}
