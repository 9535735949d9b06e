#include "tests/fake_cuda/driver_streams.h"

#include <mutex>
#include <set>

#include "tests/fake_cuda/capture.h"
#include "tests/fake_cuda/driver_call.h"
#include "tests/fake_cuda/driver_memory.h"

using fake_cuda::Captures;
using fake_cuda::driver_call;
using fake_cuda::driver_stream_known;
using fake_cuda::give;

namespace {

struct DriverStreams {
  std::mutex mutex;
  std::set<char*> all;
};

DriverStreams& streams() {
  static DriverStreams& only = *new DriverStreams;
  return only;
}

CUresult capture_status(CUstream stream, CUstreamCaptureStatus* status) {
  if (!driver_stream_known(stream)) return CUDA_ERROR_INVALID_HANDLE;
  int found = fake_cuda::not_captured;
  const int error = Captures::get().status(stream, &found);
  return error != 0 ? static_cast<CUresult>(error) : give(status, static_cast<CUstreamCaptureStatus>(found));
}

char the_graph;  // nobody looks into it

CUresult context_of_stream(CUstream stream, CUcontext* context) {
  return driver_stream_known(stream) ? cuCtxGetCurrent(context) : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

namespace fake_cuda {

bool driver_stream_known(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return true;
  const std::lock_guard lock(streams().mutex);
  return streams().all.contains(reinterpret_cast<char*>(stream));
}

bool driver_stream_captures(CUstream stream) { return Captures::get().holds(stream); }
bool capture_forbids_waiting() { return Captures::get().forbids_unsafe_call() != 0; }

}  // namespace fake_cuda

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  return driver_call(__func__, [&] {
    if (stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(streams().mutex);
    *stream = reinterpret_cast<CUstream>(*streams().all.insert(new char).first);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return driver_call(__func__, [&] {
    char* const known = reinterpret_cast<char*>(stream);
    const std::lock_guard lock(streams().mutex);
    if (streams().all.erase(known) == 0) return CUDA_ERROR_INVALID_HANDLE;
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
    return static_cast<CUresult>(Captures::get().exchange_mode(reinterpret_cast<int*>(mode)));
  });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return driver_call(__func__, [&] {
    if (!driver_stream_known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    return static_cast<CUresult>(Captures::get().begin(stream, mode, false));
  });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return driver_call(__func__, [&] {
    const int error = Captures::get().end(stream);
    return error != 0 ? static_cast<CUresult>(error) : give(graph, reinterpret_cast<CUgraph>(&the_graph));
  });
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return cuStreamBeginCapture_v2(stream, mode);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return cuStreamEndCapture(stream, graph);
}
}
