// cuDNN's fused attention as graphs, built through cudnn-frontend: asks whether cuDNN takes a shape, with
// which workspace, and in which slices. Only cudnn_graph.cpp includes the frontend.
//
// cuDNN (version 9 and later) is opened when it is first wanted: libcudnn.so.9, or the file that the
// environment variable STOWAGE_CUDNN names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_slices.h"
#include "stowage/graph.h"

namespace stowage::cuda {

// The device for which graphs are built. Used by a single thread at a time.
class CudnnDevice {
 public:
  // Takes the calling thread's current card. Graphs execute in the order of `stream`, a cudaStream_t that
  // must outlive this object.
  explicit CudnnDevice(void* stream);
  // Describes a device of this compute capability (90: 9.0); `description` is JSON as in cuDNN's device
  // properties (9.8 and later). Graphs are built as for that card, and cannot be executed.
  CudnnDevice(const std::string& description, int compute_capability);
  ~CudnnDevice();
  CudnnDevice(const CudnnDevice&) = delete;
  CudnnDevice& operator=(const CudnnDevice&) = delete;

  // Why no graph can be built for the device, and what to do; empty if graphs can be built.
  const std::string& missing() const { return missing_; }

 private:
  friend class CudnnGraph;
  struct Target;
  std::unique_ptr<Target> target_;
  std::string missing_;
};

// Operands of a graph: the fields of AttentionGradient, and for shapes with padding i32 [samples]: how many
// of a sample's queries and keys count.
enum AttentionOperand : std::int64_t {
  queries = 1,
  keys,
  values,
  out,
  statistics,
  dout,
  dqueries,
  dkeys,
  dvalues,
  query_lengths,
  key_lengths,
};

// A slice of a shape's attention, forward or backward, as kernels that cuDNN has chosen.
class CudnnGraph {
 public:
  // `device` must outlive it.
  CudnnGraph(const AttentionSlice& slice, const CudnnDevice& device);
  ~CudnnGraph();
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  // Compiles the graph; called once. Returns why cuDNN does not take this slice of the shape: the step that
  // refused, cuDNN's code and message. Empty on success.
  std::string compile(const AttentionShape& shape, DataType type, bool backward);

  const AttentionSlice& slice() const { return slice_; }
  std::int64_t workspace_bytes() const { return workspace_; }

  // Addresses of the operands for the next execution, aligned to 16 bytes.
  std::unordered_map<std::int64_t, void*>& places() { return places_; }
  // Enqueues the graph on the device's stream. `name` is for messages. Throws DeviceError.
  void execute(void* workspace, const char* name);

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
  const CudnnDevice& device_;
  AttentionSlice slice_;
  std::int64_t workspace_ = 0;
  std::unordered_map<std::int64_t, void*> places_;
};

// cuDNN's answer for a shape. If there is no graph, `refusal` says why cuDNN does not compute it.
struct CudnnAnswer {
  std::unique_ptr<CudnnGraph> graph;
  std::string refusal;
};

// The bytes at the front of a workspace that hold a shape's lengths: a multiple of 256, 0 without padding.
std::size_t lengths_bytes(const AttentionShape& shape);

// Asks for the whole shape at once, if it fits `workspace` bytes behind the lengths; backward else in slices
// as large as fit, estimated from the workspace of the whole shape. The answer depends on the shape, the
// workspace, the card and the version of cuDNN alone.
CudnnAnswer ask_cudnn(const AttentionShape& shape, DataType type, bool backward, std::size_t workspace,
                      const CudnnDevice& device);

}  // namespace stowage::cuda
