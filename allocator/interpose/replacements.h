// Replacements of driver functions, under their names, that cuda.h does not declare, since it renames old
// functions and hides per-thread ones.
#pragma once

#include <cuda.h>

#undef cuCtxDestroy
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#undef cuStreamBeginCapture
#undef cuStreamDestroy

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags);
CUresult cuCtxDestroy(CUcontext context);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuStreamDestroy(CUstream stream);
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCapture_ptsz(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* data, size_t count,
                                          CUstreamCaptureMode mode);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph);
}
// NOLINTEND(readability-identifier-naming)
