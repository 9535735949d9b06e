#include "src/graph/update_ops.h"

#include <algorithm>
#include <utility>

namespace stowage {
namespace {

class UpdatePhase {
 public:
  UpdatePhase(Graph& graph, const std::vector<TensorId>& gradients) : graph_(graph), gradients_(gradients) {}

  void run(const AdamW& optimizer) {
    const std::vector<TensorId> parameters = parameters_by_first_use(graph_);
    const std::vector<TensorId> sums = add_square_sums(parameters);
    graph_.clip = add_tensor({"clip", DataType::f64, {2}, TensorKind::activation, {}});
    Op clip = named("clip", "clip");
    clip.attributes = {{"clip", optimizer.clip}};
    clip.reads = sums;
    clip.writes = {graph_.clip};
    clip.cost.flops = static_cast<double>(sums.size());
    add_update_op(std::move(clip));
    for (const TensorId parameter : parameters) add_adamw(parameter, optimizer);
  }

 private:
  Graph& graph_;
  const std::vector<TensorId>& gradients_;

  TensorId add_tensor(Tensor tensor) {
    graph_.tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(graph_.tensors.size() - 1);
  }

  static Op named(std::string name, const char* kernel) {
    Op op;
    op.name = std::move(name);
    op.kernel = kernel;
    return op;
  }

  void add_update_op(Op op) {
    op.phase = Phase::update;
    op.cost.bytes = operand_bytes(graph_, op);
    graph_.ops.push_back(std::move(op));
  }

  // The sums, in the order of `parameters`.
  std::vector<TensorId> add_square_sums(const std::vector<TensorId>& parameters) {
    std::vector<TensorId> sums;
    std::vector<std::vector<Op>> behind(graph_.ops.size());
    const std::vector<OpId> producers = find_producers();
    for (const TensorId parameter : parameters) {
      const OpId producer = producers[gradients_[parameter]];
      behind[producer].push_back(square_sum(parameter, graph_.ops[producer].unit));
      sums.push_back(behind[producer].back().writes[0]);
    }
    insert(std::move(behind));
    return sums;
  }

  std::vector<OpId> find_producers() const {
    std::vector<OpId> producers(graph_.tensors.size(), no_id);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      for (const TensorId id : graph_.ops[op].writes) producers[id] = op;
    }
    return producers;
  }

  Op square_sum(TensorId parameter, std::uint32_t unit) {
    const std::string name = graph_.tensors[parameter].name + ".grad.square_sum";
    const TensorId gradient = gradients_[parameter];
    const TensorId sum = add_tensor({name, DataType::f64, {}, TensorKind::activation, {}});
    Op op = named(name, "square_sum");
    op.reads = {gradient};
    op.writes = {sum};
    op.phase = Phase::backward;
    op.unit = unit;
    op.cost.flops = 2 * static_cast<double>(graph_.tensors[gradient].elements());
    op.cost.bytes = operand_bytes(graph_, op);
    return op;
  }

  // Puts behind each op those of `behind`.
  void insert(std::vector<std::vector<Op>> behind) {
    std::vector<Op> all;
    for (OpId id = 0; id < behind.size(); ++id) {
      all.push_back(std::move(graph_.ops[id]));
      for (Op& op : behind[id]) all.push_back(std::move(op));
    }
    graph_.ops = std::move(all);
  }

  void add_adamw(TensorId parameter, const AdamW& optimizer) {
    const Tensor source = graph_.tensors[parameter];
    const bool split = source.type == DataType::bf16;  // the other half of the master weight is state
    const DataType moments = split ? DataType::f32 : source.type;
    const auto state = [&](const char* suffix, DataType type) {
      return add_tensor({source.name + suffix, type, source.shape, TensorKind::optimizer_state, {}});
    };
    const bool decays = optimizer.decayed == DecayedParameters::all || source.shape.size() >= 2;
    Op op = named(source.name + ".adamw", "adamw");
    op.attributes = {{"beta1", optimizer.beta1},
                     {"beta2", optimizer.beta2},
                     {"epsilon", optimizer.epsilon},
                     {"weight_decay", decays ? optimizer.weight_decay : 0.0}};
    op.writes = {parameter, state(".adam_m", moments), state(".adam_v", moments)};
    op.reads = {parameter, gradients_[parameter], op.writes[1], op.writes[2], graph_.clip};
    if (split) {
      op.writes.push_back(state(".low", DataType::i16));
      op.reads.push_back(op.writes.back());
    }
    op.cost.flops = 16 * static_cast<double>(source.elements());
    add_update_op(std::move(op));
  }
};

}  // namespace

std::string_view to_string(DecayedParameters decayed) {
  return decayed == DecayedParameters::all ? "all" : "matrices";
}

double operand_bytes(const Graph& graph, const Op& op) {
  double bytes = 0;
  for (const TensorId tensor : op.reads) bytes += static_cast<double>(graph.tensors[tensor].bytes());
  for (const TensorId tensor : op.writes) bytes += static_cast<double>(graph.tensors[tensor].bytes());
  return bytes;
}

std::vector<TensorId> parameters_by_first_use(const Graph& graph) {
  std::vector<TensorId> parameters;
  std::vector<bool> seen(graph.tensors.size());
  const auto visit = [&](TensorId id) {
    if (graph.tensors[id].kind != TensorKind::parameter || seen[id]) return;
    seen[id] = true;
    parameters.push_back(id);
  };
  for (const Op& op : graph.ops) std::for_each(op.reads.begin(), op.reads.end(), visit);
  for (TensorId id = 0; id < graph.tensors.size(); ++id) visit(id);
  return parameters;
}

void append_update(Graph& graph, const std::vector<TensorId>& gradients, const AdamW& optimizer) {
  UpdatePhase(graph, gradients).run(optimizer);
}

}  // namespace stowage
