#include "src/replay/graph_trace.h"

#include <algorithm>

namespace stowage {
namespace {

bool stays(const Tensor& tensor) {
  return tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state;
}

std::vector<OpId> last_ops(const Graph& graph) {
  std::vector<OpId> last(graph.tensors.size(), no_id);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    for (const auto* ids : {&graph.ops[op].reads, &graph.ops[op].writes}) {
      for (const TensorId id : *ids) last[id] = op;
    }
  }
  return last;
}

void add_step(const Graph& graph, TraceBuilder& builder) {
  const std::vector<OpId> last = last_ops(graph);
  std::vector<AllocationId> allocated(graph.tensors.size(), no_id);
  const auto make = [&](TensorId id) {
    if (allocated[id] == no_id && !stays(graph.tensor(id)))
      allocated[id] = builder.allocate(graph.tensor(id).bytes());
  };
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).kind == TensorKind::input && last[id] != no_id) make(id);
  }
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    std::vector<TensorId> touched = graph.op(op).reads;
    for (const TensorId id : graph.op(op).writes) {
      make(id);
      if (std::find(touched.begin(), touched.end(), id) == touched.end()) touched.push_back(id);
    }
    for (const TensorId id : touched) {
      if (last[id] != op || allocated[id] == no_id) continue;
      builder.free(allocated[id]);
      allocated[id] = no_id;
    }
  }
}

}  // namespace

AllocationTrace trace_of_steps(std::span<const Graph> graphs) {
  TraceBuilder builder;
  if (graphs.empty()) return std::move(builder).finish();
  for (const Tensor& tensor : graphs.front().tensors) {
    if (stays(tensor)) builder.allocate(tensor.bytes());
  }
  for (const Graph& graph : graphs) {
    builder.begin_iteration();
    add_step(graph, builder);
  }
  return std::move(builder).finish();
}

}  // namespace stowage
