#include "tests/fake_cuda/driver_streams.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "tests/fake_cuda/driver_call.h"
#include "tests/fake_cuda/driver_memory.h"

using fake_cuda::driver_call;
using fake_cuda::driver_stream_captures;
using fake_cuda::driver_stream_known;
using fake_cuda::give;

namespace {

struct DriverStreams {
  std::mutex mutex;
  std::map<char*, bool> capturing;  // of each stream
};

DriverStreams& streams() {
  static DriverStreams& only = *new DriverStreams;
  return only;
}

CUresult capture_status(CUstream stream, CUstreamCaptureStatus* status) {
  if (!driver_stream_known(stream)) return CUDA_ERROR_INVALID_HANDLE;
  return give(status, driver_stream_captures(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                     : CU_STREAM_CAPTURE_STATUS_NONE);
}

CUresult set_capturing(CUstream stream, bool capturing) {
  const std::lock_guard lock(streams().mutex);
  const auto found = streams().capturing.find(reinterpret_cast<char*>(stream));
  if (found == streams().capturing.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (found->second == capturing) return CUDA_ERROR_ILLEGAL_STATE;
  found->second = capturing;
  return CUDA_SUCCESS;
}

char the_graph;  // nobody looks into it
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult context_of_stream(CUstream stream, CUcontext* context) {
  return driver_stream_known(stream) ? cuCtxGetCurrent(context) : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

namespace fake_cuda {

bool driver_stream_known(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return true;
  const std::lock_guard lock(streams().mutex);
  return streams().capturing.contains(reinterpret_cast<char*>(stream));
}

bool driver_stream_captures(CUstream stream) {
  const std::lock_guard lock(streams().mutex);
  const auto found = streams().capturing.find(reinterpret_cast<char*>(stream));
  return found != streams().capturing.end() && found->second;
}

bool any_driver_stream_captures() {
  const std::lock_guard lock(streams().mutex);
  return std::any_of(streams().capturing.begin(), streams().capturing.end(),
                     [](const auto& stream) { return stream.second; });
}

bool capture_forbids_waiting() {
  return capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && any_driver_stream_captures();
}

}  // namespace fake_cuda

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  return driver_call(__func__, [&] {
    if (stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(streams().mutex);
    *stream = reinterpret_cast<CUstream>(streams().capturing.emplace(new char, false).first->first);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return driver_call(__func__, [&] {
    char* const known = reinterpret_cast<char*>(stream);
    const std::lock_guard lock(streams().mutex);
    if (streams().capturing.erase(known) == 0) return CUDA_ERROR_INVALID_HANDLE;
    delete known;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return driver_call(__func__, [&] { return capture_status(stream, status); });
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return driver_call(__func__, [&] { return capture_status(stream, status); });
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return driver_call(__func__, [&] { return context_of_stream(stream, context); });
}

CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext* context) {
  return driver_call(__func__, [&] { return context_of_stream(stream, context); });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return driver_call(__func__, [&] {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, capture_mode);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  return driver_call(__func__, [&] { return set_capturing(stream, true); });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return driver_call(__func__, [&] {
    const CUresult result = set_capturing(stream, false);
    return result != CUDA_SUCCESS ? result : give(graph, reinterpret_cast<CUgraph>(&the_graph));
  });
}
}
