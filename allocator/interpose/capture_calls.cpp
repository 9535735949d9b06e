// The calls between which a stream is captured.
#include "allocator/interpose/captures.h"
#include "allocator/interpose/driver.h"
#include "allocator/interpose/replacements.h"

namespace stowage::interpose {
namespace {

template <class Function, class... Arguments>
CUresult begin_capture(const void* caller, Entry entry, CUstream stream, Arguments... arguments) {
  const Outermost outermost(caller);
  const auto call = [&] { return call_real<Function>(entry, stream, arguments...); };
  return outermost ? captures().begin(entry, stream, call) : call();
}

CUresult end_capture(const void* caller, Entry entry, CUstream stream, CUgraph* graph) {
  const Outermost outermost(caller);
  const CUresult result = call_real<decltype(cuStreamEndCapture)>(entry, stream, graph);
  if (outermost) captures().may_have_ended(entry, stream);
  return result;
}

}  // namespace
}  // namespace stowage::interpose

using namespace stowage::interpose;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream) {
  return begin_capture<decltype(cuStreamBeginCapture)>(__builtin_return_address(0),
                                                       Entry::stream_begin_capture_v1, stream);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return begin_capture<decltype(cuStreamBeginCapture)>(__builtin_return_address(0),
                                                       Entry::stream_begin_capture_v1_ptsz, stream);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture<decltype(cuStreamBeginCapture_v2)>(__builtin_return_address(0),
                                                          Entry::stream_begin_capture, stream, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture<decltype(cuStreamBeginCapture_v2)>(__builtin_return_address(0),
                                                          Entry::stream_begin_capture_ptsz, stream, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* data, size_t count, CUstreamCaptureMode mode) {
  return begin_capture<decltype(cuStreamBeginCaptureToGraph)>(__builtin_return_address(0),
                                                              Entry::stream_begin_capture_to_graph, stream,
                                                              graph, dependencies, data, count, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* data, size_t count,
                                          CUstreamCaptureMode mode) {
  return begin_capture<decltype(cuStreamBeginCaptureToGraph)>(__builtin_return_address(0),
                                                              Entry::stream_begin_capture_to_graph_ptsz,
                                                              stream, graph, dependencies, data, count, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return end_capture(__builtin_return_address(0), Entry::stream_end_capture, stream, graph);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return end_capture(__builtin_return_address(0), Entry::stream_end_capture_ptsz, stream, graph);
}
}
