// cuDNN's fused attention as graphs, built through cudnn-frontend: what of a shape cuDNN takes, with which
// workspace, and in which slices. Nothing else includes the frontend.
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

// What graphs are built for. One thread at a time.
class CudnnDevice {
 public:
  // The calling thread's current card. Graphs execute in the order of `stream`, a cudaStream_t that must
  // outlive this.
  explicit CudnnDevice(void* stream);
  // A device of this compute capability (90: 9.0) that is only described, in the JSON that cuDNN's device
  // properties have (9.8 and later): graphs are built as for that card, and none can be executed.
  CudnnDevice(const std::string& description, int compute_capability);
  ~CudnnDevice();
  CudnnDevice(const CudnnDevice&) = delete;
  CudnnDevice& operator=(const CudnnDevice&) = delete;

  // Why no graph can be built for it, and what to do; empty: graphs can be built.
  const std::string& missing() const { return missing_; }

 private:
  friend class CudnnGraph;
  struct Target;
  std::unique_ptr<Target> target_;
  std::string missing_;
};

// The operands of a graph: those of AttentionGradient, and for shapes with padding i32 [samples]: how many of
// a sample's queries and keys count.
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

// One slice of a shape's attention, forward or backward, as kernels that cuDNN has chosen.
class CudnnGraph {
 public:
  // `device` must outlive it.
  CudnnGraph(const AttentionSlice& slice, const CudnnDevice& device);
  ~CudnnGraph();
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  // Once. Why cuDNN does not take this slice of the shape: the step that refused, cuDNN's code and message.
  // Empty: it is compiled.
  std::string compile(const AttentionShape& shape, DataType type, bool backward);

  const AttentionSlice& slice() const { return slice_; }
  std::int64_t workspace_bytes() const { return workspace_; }

  // Where the operands are this time; all of them are aligned to 16 bytes.
  std::unordered_map<std::int64_t, void*>& places() { return places_; }
  // Enqueues it on the device's stream. `name` is for messages. Throws DeviceError.
  void execute(void* workspace, const char* name);

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
  const CudnnDevice& device_;
  AttentionSlice slice_;
  std::int64_t workspace_ = 0;
  std::unordered_map<std::int64_t, void*> places_;
};

// Without a graph: cuDNN does not compute the shape, and `refusal` says why.
struct CudnnAnswer {
  std::unique_ptr<CudnnGraph> graph;
  std::string refusal;
};

// The bytes at the front of a workspace that hold a shape's lengths: a multiple of 256, 0 without padding.
std::size_t lengths_bytes(const AttentionShape& shape);

// The whole shape at once where it fits `workspace` bytes behind the lengths; backward else in slices as
// large as fit, judged by what the whole would take. The answer depends on the shape, the workspace, the card
// and the version of cuDNN alone.
CudnnAnswer ask_cudnn(const AttentionShape& shape, DataType type, bool backward, std::size_t workspace,
                      const CudnnDevice& device);

}  // namespace stowage::cuda
