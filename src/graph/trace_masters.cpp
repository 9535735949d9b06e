#include "src/graph/trace_tensors.h"

#include <algorithm>
#include <optional>

#include "src/graph/update_ops.h"

namespace stowage {
namespace {

// A parameter that takes the type of its cast.
struct Taken {
  TensorId parameter = no_id, cast = no_id;   // cast: the parameter in the narrow type
  TensorId gradient = no_id, narrow = no_id;  // narrow: the gradient before its cast
  OpId forward = no_id, backward = no_id;     // the casts
};

class MasterWeights {
 public:
  MasterWeights(Graph& graph, std::vector<TensorId>& gradients)
      : graph_(graph),
        gradients_(gradients),
        producers_(producers_of(graph)),
        readers_(graph.tensors.size()),
        forward_ops_(graph.unit_names.size(), 0),
        aliased_(graph.tensors.size(), 0) {
    for (OpId id = 0; id < graph.ops.size(); ++id) {
      const Op& op = graph.ops[id];
      for (const TensorId read : op.reads) readers_[read].push_back(id);
      for (const Alias& alias : op.may_alias)
        aliased_[op.writes[alias.write]] = aliased_[op.reads[alias.read]] = 1;
      if (op.phase == Phase::forward) ++forward_ops_[op.unit];
    }
  }

  void run() {
    std::vector<Taken> all;
    for (TensorId id = 0; id < graph_.tensors.size(); ++id)
      if (const auto taken = find(id)) {
        all.push_back(*taken);
        --forward_ops_[graph_.ops[taken->forward].unit];
      }
    for (const Taken& taken : all) take(taken);
    if (!all.empty()) remove(all);
  }

 private:
  bool is_cast(OpId id, Phase phase) const {
    const Op& op = graph_.ops[id];
    if (op.phase != phase || op.kernel != cast_kernel || op.reads.size() != 1 || op.writes.size() != 1)
      return false;
    return graph_.tensors[op.reads[0]].shape == graph_.tensors[op.writes[0]].shape &&
           !aliased_[op.writes[0]] && !aliased_[op.reads[0]];
  }
  bool is_value(TensorId id) const {
    return graph_.tensors[id].kind == TensorKind::activation && id != graph_.loss;
  }

  std::optional<Taken> find(TensorId id) const {
    const Tensor& parameter = graph_.tensors[id];
    const bool is_wide =
        parameter.kind == TensorKind::parameter && parameter.trained && parameter.type == DataType::f32;
    if (!is_wide || readers_[id].size() != 1 || gradients_[id] == no_id) return {};
    Taken taken{.parameter = id, .gradient = gradients_[id], .forward = readers_[id].front()};
    taken.backward = producers_[taken.gradient];
    if (!is_cast(taken.forward, Phase::forward) || !is_cast(taken.backward, Phase::backward)) return {};
    taken.cast = graph_.ops[taken.forward].writes[0];
    taken.narrow = graph_.ops[taken.backward].reads[0];
    const DataType type = graph_.tensors[taken.cast].type;
    const bool is_narrow = type == DataType::bf16 || type == DataType::f16;
    // The unit must keep a forward op once the cast is removed.
    if (!is_narrow || graph_.tensors[taken.narrow].type != type || !is_value(taken.cast) ||
        !is_value(taken.narrow) || readers_[taken.narrow].size() != 1 || !readers_[taken.gradient].empty() ||
        forward_ops_[graph_.ops[taken.forward].unit] < 2)
      return {};
    return taken;
  }

  void take(const Taken& taken) {
    graph_.tensors[taken.parameter].type = graph_.tensors[taken.cast].type;
    for (const OpId id : readers_[taken.cast]) {
      auto& reads = graph_.ops[id].reads;
      std::replace(reads.begin(), reads.end(), taken.cast, taken.parameter);
    }
    graph_.tensors[taken.narrow].kind = TensorKind::gradient;
    gradients_[taken.parameter] = taken.narrow;
  }

  // Removes the casts, and the tensors that only they touched.
  void remove(const std::vector<Taken>& all) {
    std::vector<std::uint8_t> gone(graph_.tensors.size(), 0), ended(graph_.ops.size(), 0);
    for (const Taken& taken : all) {
      gone[taken.cast] = gone[taken.gradient] = 1;
      ended[taken.forward] = ended[taken.backward] = 1;
    }
    std::vector<TensorId> now(graph_.tensors.size(), no_id);
    TensorId count = 0;
    for (TensorId id = 0; id < now.size(); ++id)
      if (gone[id] == 0) now[id] = count++;
    const auto renumber = [&](TensorId& id) { id = id == no_id ? no_id : now[id]; };
    std::vector<TensorId> gradients(count, no_id);
    for (TensorId id = 0; id < now.size(); ++id)
      if (gone[id] == 0 && gradients_[id] != no_id) gradients[now[id]] = now[gradients_[id]];
    gradients_ = std::move(gradients);
    const auto keep = [](auto& items, const std::vector<std::uint8_t>& without) {
      std::size_t kept = 0;
      for (std::size_t i = 0; i < items.size(); ++i)
        if (without[i] == 0 && kept++ != i) items[kept - 1] = std::move(items[i]);
      items.resize(kept);
    };
    keep(graph_.tensors, gone);
    keep(graph_.ops, ended);
    for (Op& op : graph_.ops) {
      std::for_each(op.reads.begin(), op.reads.end(), renumber);
      std::for_each(op.writes.begin(), op.writes.end(), renumber);
    }
    renumber(graph_.loss);
  }

  Graph& graph_;
  std::vector<TensorId>& gradients_;
  const std::vector<OpId> producers_;
  std::vector<std::vector<OpId>> readers_;  // by tensor
  std::vector<std::size_t> forward_ops_;    // by unit
  std::vector<std::uint8_t> aliased_;       // by tensor: whether an op may put it into another's bytes
};

}  // namespace

void take_masters(Graph& graph, std::vector<TensorId>& gradients) { MasterWeights(graph, gradients).run(); }

}  // namespace stowage
