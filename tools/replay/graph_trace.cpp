#include "tools/replay/graph_trace.h"

#include <algorithm>

namespace stowage {
namespace {

std::vector<OpId> last_ops(const Graph& graph) {
  std::vector<OpId> last(graph.tensors.size(), no_id);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    for (const auto* ids : {&graph.ops[op].reads, &graph.ops[op].writes}) {
      for (const TensorId id : *ids) last[graph.whole_of(id)] = op;
    }
  }
  return last;
}

class TraceWriter : public StepListener {
 public:
  TraceWriter(TraceBuilder& builder, const Graph& graph)
      : builder_(builder), graph_(graph), allocated_(graph.tensors.size(), no_id) {}
  void allocate(TensorId id) override { allocated_[id] = builder_.allocate(graph_.tensor(id).bytes()); }
  void free(TensorId id) override { builder_.free(allocated_[id]); }

 private:
  TraceBuilder& builder_;
  const Graph& graph_;
  std::vector<AllocationId> allocated_;
};

}  // namespace

bool stays(const Tensor& tensor) {
  return tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state;
}

void play_step(const Graph& graph, StepListener& listener) {
  const std::vector<OpId> last = last_ops(graph);
  std::vector<bool> is_there(graph.tensors.size(), false);
  const auto make = [&](TensorId id) {
    if (is_there[id] || stays(graph.tensor(id))) return;
    is_there[id] = true;
    listener.allocate(id);
  };
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).kind == TensorKind::input && last[id] != no_id) make(id);
  }
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    std::vector<TensorId> touched = graph.op(op).reads;
    for (TensorId& id : touched) id = graph.whole_of(id);
    for (const TensorId written : graph.op(op).writes) {
      const TensorId id = graph.whole_of(written);
      make(id);
      if (std::find(touched.begin(), touched.end(), id) == touched.end()) touched.push_back(id);
    }
    listener.run(graph.op(op));
    for (const TensorId id : touched) {
      if (last[id] != op || !is_there[id]) continue;
      is_there[id] = false;
      listener.free(id);
    }
  }
}

AllocationTrace trace_of_steps(std::span<const Graph> graphs) {
  TraceBuilder builder;
  if (graphs.empty()) return std::move(builder).finish();
  for (const Tensor& tensor : graphs.front().tensors) {
    if (stays(tensor)) builder.allocate(tensor.bytes());
  }
  for (const Graph& graph : graphs) {
    builder.begin_iteration();
    TraceWriter writer(builder, graph);
    play_step(graph, writer);
  }
  return std::move(builder).finish();
}

}  // namespace stowage
