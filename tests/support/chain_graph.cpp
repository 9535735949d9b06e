#include "tests/support/chain_graph.h"

#include <gtest/gtest.h>

namespace stowage::testing {
namespace {

class ChainMaker {
 public:
  explicit ChainMaker(const ChainOptions& options) : options_(options) {}

  Graph make() {
    x_.push_back(activation("x0"));
    TensorId tokens = add("tokens", DataType::i32, {16}, TensorKind::input);
    unit_ = 0;
    graph_.unit_names.push_back("embed");
    op("embed", Phase::forward, {tokens}, {x_[0]});
    for (int k = 0; k < options_.units; ++k) forward(std::to_string(k));
    ++unit_;
    graph_.unit_names.push_back("head");
    graph_.loss = add("loss", DataType::f64, {}, TensorKind::activation);
    op("head", Phase::forward, {x_.back()}, {graph_.loss});
    TensorId dx = activation("dx" + std::to_string(options_.units));
    op("head.backward", Phase::backward, {x_.back()}, {dx});
    for (int k = options_.units; k-- > 0;) dx = backward(k, dx);
    update();
    return std::move(graph_);
  }

 private:
  TensorId add(const std::string& name, DataType type, std::vector<std::int64_t> shape, TensorKind kind) {
    graph_.tensors.push_back({name, type, std::move(shape), kind, {}});
    return static_cast<TensorId>(graph_.tensors.size() - 1);
  }
  TensorId activation(const std::string& name) {
    return add(name, DataType::f32, {options_.activation_elements}, TensorKind::activation);
  }
  TensorId like_parameter(const std::string& name, TensorKind kind) {
    return add(name, DataType::f32, {options_.parameter_elements}, kind);
  }
  void op(const std::string& name, Phase phase, std::vector<TensorId> reads, std::vector<TensorId> writes) {
    Op op;
    op.name = name;
    op.kernel = name.substr(0, name.find_first_of("0123456789"));
    op.reads = std::move(reads);
    op.writes = std::move(writes);
    op.phase = phase;
    op.unit = phase == Phase::update ? no_id : unit_;
    op.cost.flops = options_.op_flops;
    graph_.ops.push_back(op);
  }
  void forward(const std::string& k) {
    ++unit_;
    graph_.unit_names.push_back("unit" + k);
    w_.push_back(like_parameter("W" + k, TensorKind::parameter));
    h_.push_back(activation("h" + k));
    TensorId next = activation("x" + std::to_string(x_.size()));
    op("a" + k, Phase::forward, {x_.back(), w_.back()}, {h_.back()});
    op("b" + k, Phase::forward, {h_.back()}, {next});
    x_.push_back(next);
  }
  TensorId backward(int index, TensorId dnext) {
    std::size_t i = static_cast<std::size_t>(index);
    std::string k = std::to_string(index);
    unit_ = static_cast<std::uint32_t>(index + 1);
    TensorId dh = activation("dh" + k);
    op("b.backward" + k, Phase::backward, {h_[i], dnext}, {dh});
    gradient_[i] = like_parameter("W" + k + ".grad", TensorKind::gradient);
    op("a.weight" + k, Phase::backward, {x_[i], dh}, {gradient_[i]});
    sum_[i] = add("sum" + k, DataType::f64, {}, TensorKind::activation);
    op("square" + k, Phase::backward, {gradient_[i]}, {sum_[i]});
    if (index == 0) return no_id;
    TensorId dx = activation("dx" + k);
    op("a.input" + k, Phase::backward, {w_[i], dh}, {dx});
    return dx;
  }
  void update() {
    graph_.clip = add("clip", DataType::f64, {2}, TensorKind::activation);
    std::vector<TensorId> sums;
    for (auto& [index, id] : sum_) sums.push_back(id);
    op("clip", Phase::update, sums, {graph_.clip});
    for (std::size_t i = 0; i < w_.size(); ++i) {
      std::string k = std::to_string(i);
      TensorId m = like_parameter("m" + k, TensorKind::optimizer_state);
      TensorId v = like_parameter("v" + k, TensorKind::optimizer_state);
      op("adamw" + k, Phase::update, {w_[i], gradient_[i], m, v, graph_.clip}, {w_[i], m, v});
      graph_.ops.back().cost.bytes = static_cast<double>(7 * 4 * options_.parameter_elements);
      graph_.ops.back().kernel = options_.undoable ? "adamw" : "sgd";
    }
  }

  ChainOptions options_;
  Graph graph_;
  std::uint32_t unit_ = 0;
  std::vector<TensorId> x_, h_, w_;
  std::map<std::size_t, TensorId> gradient_, sum_;
};

}  // namespace

Graph chain_graph(const ChainOptions& options) { return ChainMaker(options).make(); }

TensorId find_tensor(const Graph& graph, const std::string& name) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (graph.tensors[id].name == name) return id;
  ADD_FAILURE() << "no tensor " << name;
  return no_id;
}

OpId find_op(const Graph& graph, const std::string& name) {
  for (OpId id = 0; id < graph.ops.size(); ++id)
    if (graph.ops[id].name == name) return id;
  ADD_FAILURE() << "no op " << name;
  return no_id;
}

}  // namespace stowage::testing
