// The fake driver's functions that cuda.h does not declare: it renames the old ones and hides the per-thread
// ones.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <optional>

extern "C" {
CUresult fake_mem_alloc_v1(unsigned* address, unsigned bytes) __asm__("cuMemAlloc");
CUresult fake_mem_alloc_of_the_future(CUdeviceptr* address, std::size_t bytes,
                                      void* more) __asm__("cuMemAlloc_v9");
CUresult fake_primary_ctx_release_v1(CUdevice device) __asm__("cuDevicePrimaryCtxRelease");
CUresult fake_primary_ctx_reset_v1(CUdevice device) __asm__("cuDevicePrimaryCtxReset");
CUresult fake_ctx_destroy_v1(CUcontext context) __asm__("cuCtxDestroy");
CUresult fake_stream_destroy_v1(CUstream stream) __asm__("cuStreamDestroy");
CUresult fake_ipc_open_v1(CUdeviceptr* address, CUipcMemHandle handle,
                          unsigned flags) __asm__("cuIpcOpenMemHandle");
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, std::size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,
                                      CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext* context);
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph);
CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status);
}
