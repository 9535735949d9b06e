#include "tests/offload/oracle/small_graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace stowage::oracle {
namespace {

class ChainBuilder {
 public:
  explicit ChainBuilder(const SmallGraphOptions& options) : options_(options) {}

  Graph run() {
    x_.push_back(add("x0", DataType::f32, {options_.input}, TensorKind::input));
    for (std::size_t k = 0; k < options_.units.size(); ++k) forward(k);
    begin_unit("head");
    graph_.loss = add("loss", DataType::f64, {}, TensorKind::activation);
    op("head", Phase::forward, {x_.back()}, {graph_.loss}, options_.head_flops);
    TensorId dx = activation("dx.head", options_.units.back().activation);
    op("head.backward", Phase::backward, {x_.back()}, {dx}, options_.head_flops);
    for (std::size_t k = options_.units.size(); k-- > 0;) dx = backward(k, dx);
    update();
    return std::move(graph_);
  }

 private:
  TensorId add(const std::string& name, DataType type, std::vector<std::int64_t> shape, TensorKind kind) {
    graph_.tensors.push_back({name, type, std::move(shape), kind, {}});
    return static_cast<TensorId>(graph_.tensors.size() - 1);
  }
  TensorId activation(const std::string& name, std::int64_t elements) {
    return add(name, DataType::f32, {elements}, TensorKind::activation);
  }
  void begin_unit(const std::string& name) {
    unit_ = static_cast<std::uint32_t>(graph_.unit_names.size());
    graph_.unit_names.push_back(name);
  }
  void op(const std::string& name, Phase phase, std::vector<TensorId> reads, std::vector<TensorId> writes,
          double flops) {
    Op op;
    op.name = name;
    op.kernel = name.substr(0, name.find_first_of("0123456789"));
    op.reads = std::move(reads);
    op.writes = std::move(writes);
    op.phase = phase;
    op.unit = phase == Phase::update ? no_id : unit_;
    op.cost.flops = flops;
    graph_.ops.push_back(op);
  }

  void forward(std::size_t k) {
    const UnitShape& shape = options_.units[k];
    const std::string name = std::to_string(k);
    begin_unit("unit" + name);
    w_.push_back(no_id);
    if (shape.parameter > 0) {
      w_[k] = add("W" + name, DataType::f32, {shape.parameter}, TensorKind::parameter);
      graph_.tensors[w_[k]].trained = !shape.frozen;
    }
    saved_.push_back(no_id);
    std::vector<TensorId> reads{x_[k]};
    if (w_[k] != no_id) reads.push_back(w_[k]);
    const TensorId next = activation("x" + std::to_string(k + 1), shape.activation);
    switch (shape.form) {
      case UnitShape::Form::plain:
        op("a" + name, Phase::forward, reads, {next}, shape.flops);
        break;
      case UnitShape::Form::stats:
        saved_[k] = activation("s" + name, shape.saved);
        op("a" + name, Phase::forward, reads, {next, saved_[k]}, shape.flops);
        break;
      case UnitShape::Form::pair:
        saved_[k] = activation("h" + name, shape.saved);
        op("a" + name, Phase::forward, reads, {saved_[k]}, shape.flops);
        op("b" + name, Phase::forward, {saved_[k]}, {next}, shape.flops);
        break;
    }
    x_.push_back(next);
  }

  TensorId backward(std::size_t k, TensorId dnext) {
    const UnitShape& shape = options_.units[k];
    const std::string name = std::to_string(k);
    unit_ = static_cast<std::uint32_t>(k);
    TensorId dy = dnext;
    if (shape.form == UnitShape::Form::pair) {
      dy = activation("dh" + name, shape.saved);
      op("b.backward" + name, Phase::backward, {saved_[k], dnext}, {dy}, 2 * shape.flops);
    }
    std::vector<TensorId> reads{x_[k], dy};
    if (shape.form == UnitShape::Form::stats) reads.push_back(saved_[k]);
    std::vector<TensorId> writes;
    const bool is_trained = w_[k] != no_id && !shape.frozen;
    if (is_trained) {
      gradient_[k] = add("W" + name + ".grad", DataType::f32, {shape.parameter}, TensorKind::gradient);
      sums_.insert(sums_.begin(), add("sum" + name, DataType::f64, {}, TensorKind::activation));
      writes = {gradient_[k], sums_.front()};
    }
    if (k == 0) {
      if (is_trained) op("a.weight" + name, Phase::backward, reads, writes, 2 * shape.flops);
      return no_id;
    }
    const TensorId dx = activation("dx" + name, options_.units[k - 1].activation);
    if (shape.split && is_trained) {
      op("a.weight" + name, Phase::backward, reads, writes, shape.flops);
      op("a.input" + name, Phase::backward, {w_[k], dy}, {dx}, shape.flops);
    } else {
      if (w_[k] != no_id) reads.push_back(w_[k]);
      writes.push_back(dx);
      op("a.backward" + name, Phase::backward, reads, writes, 2 * shape.flops);
    }
    return dx;
  }

  void update() {
    graph_.clip = add("clip", DataType::f64, {2}, TensorKind::activation);
    op("clip", Phase::update, sums_, {graph_.clip}, 0);
    graph_.ops.back().cost.bytes = static_cast<double>(8 * sums_.size());
    for (std::size_t k = 0; k < w_.size(); ++k) {
      if (w_[k] == no_id || options_.units[k].frozen) continue;
      const std::string name = std::to_string(k);
      const TensorId m =
          add("m" + name, DataType::f32, {options_.units[k].parameter}, TensorKind::optimizer_state);
      const TensorId v =
          add("v" + name, DataType::f32, {options_.units[k].parameter}, TensorKind::optimizer_state);
      op("adamw" + name, Phase::update, {w_[k], gradient_[k], m, v, graph_.clip}, {w_[k], m, v}, 0);
      graph_.ops.back().cost.bytes = static_cast<double>(7 * 4 * options_.units[k].parameter);
    }
  }

  const SmallGraphOptions& options_;
  Graph graph_;
  std::uint32_t unit_ = 0;
  std::vector<TensorId> x_, saved_, w_, sums_;  // by unit, but for the sums
  std::map<std::size_t, TensorId> gradient_;
};

// Draws that are the same with every standard library.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : bits_(seed * 0x9e3779b97f4a7c15U + 11) {}
  int below(int count) { return static_cast<int>(bits_() % static_cast<std::uint64_t>(count)); }
  bool chance(int percent) { return below(100) < percent; }
  double log_uniform(double low, double high) {
    const double at = static_cast<double>(bits_() >> 11) * 0x1p-53;
    return std::exp(std::log(low) + at * (std::log(high) - std::log(low)));
  }
  // f32 elements of about this many bytes, in whole units of alignment.
  std::int64_t elements(double low, double high) {
    return std::max<std::int64_t>(64, std::llround(log_uniform(low, high) / 256) * 64);
  }

 private:
  std::mt19937_64 bits_;
};

constexpr double kib = 1024;

UnitShape draw_unit(Draw& draw, int forms, double parameter_low) {
  UnitShape shape;
  shape.form = static_cast<UnitShape::Form>(draw.below(forms));
  shape.split = draw.chance(30);
  shape.activation = draw.elements(16 * kib, 512 * kib);
  shape.saved = draw.elements(16 * kib, 512 * kib);
  shape.parameter = draw.elements(parameter_low, 512 * kib);
  shape.flops = draw.log_uniform(0.3, 3);
  return shape;
}

// Lanes that take about as long as each other, but for one or two factors.
Machine draw_machine(Draw& draw, const Graph& graph, bool long_latency) {
  double parameters = 0, activations = 0, flops = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter) parameters += static_cast<double>(tensor.bytes());
    if (tensor.kind == TensorKind::activation) activations += static_cast<double>(tensor.bytes());
  }
  for (const Op& op : graph.ops) flops += op.cost.flops;
  const double seconds = 1e-3;  // of the compute lane
  Machine machine;
  machine.flops_per_second = flops / seconds;
  machine.device_bytes_per_second = 7 * parameters / (seconds * draw.log_uniform(0.01, 0.3));
  machine.launch_seconds = seconds * draw.log_uniform(1e-4, 2e-2);
  machine.h2d.bytes_per_second = (2 * parameters + activations / 2) / (seconds * draw.log_uniform(0.1, 4));
  machine.d2h.bytes_per_second =
      machine.h2d.bytes_per_second * (draw.chance(60) ? 1 : draw.log_uniform(0.3, 3));
  const double knee =
      long_latency ? draw.log_uniform(64 * kib, 1024 * kib) : draw.log_uniform(1 * kib, 64 * kib);
  machine.h2d.latency_seconds = knee / 19 / machine.h2d.bytes_per_second;
  machine.d2h.latency_seconds =
      knee / 19 / std::max(machine.h2d.bytes_per_second, machine.d2h.bytes_per_second);
  machine.host_bytes_per_second = 7 * parameters / (seconds * draw.log_uniform(0.05, 2));
  return machine;
}

// `frozen`: bit k: of unit k.
Instance draw_instance(Draw& draw, int units, int parameters, int forms, unsigned frozen = 0) {
  // Small parameters are worth a shared bucket on a link of long latency.
  const bool shared = draw.chance(25);
  const bool uniform = draw.chance(40);
  const double low = shared ? 20 * kib : 64 * kib;
  SmallGraphOptions options;
  const UnitShape one = draw_unit(draw, forms, low);
  for (int k = 0; k < units; ++k) {
    options.units.push_back(uniform ? one : draw_unit(draw, forms, low));
    options.units.back().frozen = (frozen >> k & 1U) != 0;
    // Units without one lie between those with one.
    if (k * parameters / units == (k - 1) * parameters / units && k > 0) options.units.back().parameter = 0;
  }
  options.input = draw.chance(50) ? 64 : draw.elements(16 * kib, 512 * kib);
  options.head_flops = draw.log_uniform(0.1, 3);
  Instance instance;
  instance.shape = std::to_string(units) + (uniform ? " uniform" : " uneven") + " units" +
                   (shared ? ", long latency" : "");
  instance.graph = small_graph(options);
  instance.machine = draw_machine(draw, instance.graph, shared);
  return instance;
}

}  // namespace

Graph small_graph(const SmallGraphOptions& options) { return ChainBuilder(options).run(); }

// Few enough choices for a search that takes milliseconds: with more units, fewer kinds of them.
Instance small_instance(std::uint64_t seed) {
  Draw draw(seed);
  const int percent = draw.below(100);
  if (percent < 35) return draw_instance(draw, 2, 2, 3);
  if (percent < 70) return draw_instance(draw, 3, draw.chance(50) ? 3 : 2, draw.chance(50) ? 2 : 1);
  if (percent < 90) return draw_instance(draw, 4, draw.chance(50) ? 3 : 2, 1);
  return draw_instance(draw, 5, 2, 1);
}

Instance frozen_instance(std::uint64_t seed) {
  Draw draw(seed);
  const unsigned frozen[] = {0b001, 0b010, 0b011};
  return draw_instance(draw, 3, 3, draw.chance(50) ? 2 : 1, frozen[seed % 3]);
}

Instance sized_instance(std::uint64_t seed, int units) {
  Draw draw(seed);
  return draw_instance(draw, units, units, 3);
}

TwoParts in_two_parts(const Graph& graph) {
  TwoParts two{graph, {}};
  Graph& made = two.graph;
  made.micro_batches = 2;
  made.unit_names.clear();
  for (const std::string& name : graph.unit_names)
    for (const char* part : {"0.", "1."}) made.unit_names.push_back(part + name);
  // The first part's own copies of activations and inputs. It has no loss and no gradients of parameters.
  std::vector<TensorId> copy(graph.tensors.size(), no_id);
  const auto copy_of = [&](TensorId id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind != TensorKind::activation && tensor.kind != TensorKind::input) return id;
    if (copy[id] == no_id) {
      copy[id] = static_cast<TensorId>(made.tensors.size());
      made.tensors.push_back(tensor);
      made.tensors.back().name = "0." + tensor.name;
    }
    return copy[id];
  };
  std::vector<Op> forward[2], backward[2], update;
  std::vector<TensorId> sums;
  for (const Op& op : graph.ops)
    if (op.phase == Phase::update && sums.empty()) sums = op.reads;  // of the clip op
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::update) {
      update.push_back(op);
      continue;
    }
    for (const std::uint32_t part : {0U, 1U}) {
      Op own = op;
      own.unit = 2 * op.unit + part;
      if (part == 0) {
        own.name = "0." + op.name;
        std::erase_if(own.writes, [&](TensorId id) {
          return graph.kind_of(id) == TensorKind::gradient ||
                 std::find(sums.begin(), sums.end(), id) != sums.end();
        });
        for (TensorId& id : own.reads) id = copy_of(id);
        for (TensorId& id : own.writes) id = copy_of(id);
        if (own.writes.empty()) continue;
      }
      (op.phase == Phase::forward ? forward : backward)[part].push_back(own);
    }
  }
  const auto append = [](std::vector<Op>& ops, const std::vector<Op>& more) {
    ops.insert(ops.end(), more.begin(), more.end());
  };
  two.forwards_first = made;
  two.forwards_first.micro_batches = 1;
  two.forwards_first.ops.clear();
  for (const auto& ops : {forward[0], forward[1], backward[0], backward[1], update})
    append(two.forwards_first.ops, ops);
  // Program order is half-block by half-block.
  made.ops.clear();
  const auto half_blocks = static_cast<std::uint32_t>(graph.unit_names.size());
  for (const auto* phase : {&forward, &backward})
    for (std::uint32_t k = 0; k < half_blocks; ++k)
      for (const std::uint32_t part : {0U, 1U})
        for (const Op& op : (*phase)[part])
          if (op.unit / 2 == (phase == &forward ? k : half_blocks - 1 - k)) made.ops.push_back(op);
  append(made.ops, update);
  return two;
}

}  // namespace stowage::oracle
