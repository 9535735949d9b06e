#include "tests/support/random_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "stowage/graph_builder.h"

namespace stowage::testing {
namespace {

// Draws that are the same with every standard library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : bits_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {  // both included
    return low + static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  double real(double low, double high) {
    return low + (high - low) * static_cast<double>(bits_() >> 11) * 0x1p-53;
  }
  double log_uniform(double low, double high) { return std::exp(real(std::log(low), std::log(high))); }
  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }

 private:
  std::mt19937_64 bits_;
};

bool contains(const std::vector<Value>& values, Value value) {
  return std::any_of(values.begin(), values.end(), [&](Value other) { return other.id == value.id; });
}

// A forward value that later ops may read.
struct Known {
  Value value;
  bool saved = false;  // some backward op reads it
  bool read = false;   // some forward op reads it
};

// The shape of an op's backward ops, decided when the op is made.
struct BackwardShape {
  std::vector<Value> inputs;      // inputs of the forward op that may want gradients
  std::vector<Value> saved;       // forward values that the backward ops read
  bool joint_parameters = false;  // one op for all parameters' gradients
  bool in_place = false;
  bool workspace = false;
  std::int64_t key = 0;
};

class Generator {
 public:
  Generator(std::uint64_t seed, const RandomGraphOptions& options) : dice_(seed), options_(options) {}

  Graph build() {
    builder_.split_batch(options_.micro_batches, options_.gradient_groups, options_.share);
    inputs_.push_back(builder_.input("tokens", {size()}));
    if (dice_.chance(40)) inputs_.push_back(builder_.input("targets", {size()}));
    const std::int64_t units = dice_.between(1, options_.max_units);
    known_of_.resize(options_.micro_batches);
    for (std::int64_t unit = 0; unit < units; ++unit)
      for_each_part([&](std::uint32_t part) { add_unit(unit, part); });
    const bool head = dice_.chance(60) || options_.micro_batches > 1;
    Value loss;
    for_each_part([&](std::uint32_t part) {
      if (head) builder_.begin_unit("head", part);
      loss = builder_.sum_loss(add_loss());
    });
    return builder_.finish(loss, AdamW{.clip = dice_.chance(70) ? 1.0 : 0.0, .grid = options_.grid});
  }

 private:
  std::int64_t size() {
    const std::int64_t most = std::max<std::int64_t>(options_.max_elements, 16);
    const std::int64_t draw = dice_.between(0, 99);
    if (draw < 25) return dice_.between(1, 16);
    if (draw < 75) return dice_.between(most / 16, most / 4);
    return dice_.between(most / 2, most);
  }
  // Returns a shape, often that of the first read, so that work in place is possible.
  std::vector<std::int64_t> shape_like(const std::vector<Value>& reads) {
    if (dice_.chance(60)) return builder_.tensor(reads.front()).shape;
    const std::int64_t elements = size();
    if (elements % 2 == 0 && dice_.chance(30)) return {2, elements / 2};
    return {elements};
  }

  // Builds every micro-batch with the same draws; each goes on from its own values.
  template <class Build>
  void for_each_part(Build build) {
    const Dice before = dice_;
    const std::vector<Value> parameters = parameters_;
    for (std::uint32_t part = 0; part < options_.micro_batches; ++part) {
      dice_ = before;
      parameters_ = parameters;
      std::swap(known_, known_of_[part]);
      prefix_ = options_.micro_batches > 1 ? fmt::format("micro.{}.", part) : "";
      build(part);
      std::swap(known_, known_of_[part]);
    }
  }

  void add_unit(std::int64_t unit, std::uint32_t part) {
    builder_.begin_unit(fmt::format("u{}", unit), part);
    const std::int64_t ops = dice_.between(1, options_.max_ops_per_unit);
    for (std::int64_t op = 0; op < ops; ++op) add_op(fmt::format("u{}.op{}", unit, op));
  }

  void add_op(const std::string& name) {
    std::vector<Value> reads = choose_activations();
    add_parameters(name, reads);
    if (reads.empty() || dice_.chance(10)) reads.push_back(dice_.pick(inputs_));
    GraphBuilder::OpDescription op{name, "mix", {{"key", dice_.between(0, 63)}}, reads, {}, {}, {}};
    op.cost.flops = dice_.log_uniform(1e2, 1e7);
    op.replayable = options_.fixed_percent == 0 || !dice_.chance(options_.fixed_percent);
    const bool in_place = choose_in_place(reads);
    op.writes.push_back(
        builder_.activation(name + ".y", in_place ? builder_.tensor(reads[0]).shape : shape_like(reads)));
    if (in_place) op.may_alias.push_back({0, 0});
    if (dice_.chance(25)) op.writes.push_back(builder_.activation(name + ".z", {size()}));
    const BackwardShape shape = choose_backward(reads, op.writes, in_place);
    const std::vector<Value> outputs = op.writes;
    if (dice_.chance(20)) op.writes.push_back(builder_.workspace(name + ".work", bytes()));
    emit(op, shape);
    note(reads, outputs, shape, in_place);
  }
  Bytes bytes() { return static_cast<Bytes>(size()) * 4; }

  // Chooses the newest value, values that no op has read, or any values (a long skip).
  std::vector<Value> choose_activations() {
    std::vector<Value> chosen;
    const std::int64_t count = known_.empty() ? 0 : dice_.between(1, 3);
    for (std::int64_t i = 0; i < count; ++i) {
      Value value = known_.back().value;
      if (dice_.chance(20)) value = dice_.pick(known_).value;
      if (dice_.chance(40)) {
        for (const Known& known : known_) {
          if (!known.read) value = known.value;
        }
      }
      if (!contains(chosen, value)) chosen.push_back(value);
    }
    return chosen;
  }

  void add_parameters(const std::string& name, std::vector<Value>& reads) {
    std::int64_t count = dice_.between(0, 2);
    if (parameters_.empty()) count = std::max<std::int64_t>(count, 1);
    for (std::int64_t i = 0; i < count; ++i) {
      if (!parameters_.empty() && dice_.chance(15)) {
        const Value tied = dice_.pick(parameters_);
        if (!contains(reads, tied)) reads.push_back(tied);
        continue;
      }
      std::vector<std::int64_t> shape{size()};
      if (dice_.chance(50)) shape.push_back(1);
      const std::string full = fmt::format("{}.w{}", name, i);
      // The first parameter is trained, because a step needs a trained parameter.
      const bool frozen =
          options_.frozen_percent > 0 && !parameters_.empty() && dice_.chance(options_.frozen_percent);
      parameters_.push_back(frozen ? builder_.frozen_parameter(full, shape, {0, 0.5})
                                   : builder_.parameter(full, shape, {0, 0.5}));
      reads.push_back(parameters_.back());
    }
  }

  Known* find(Value value) {
    for (Known& known : known_) {
      if (known.value.id == value.id) return &known;
    }
    return nullptr;
  }

  // True at random if the first read may be overwritten: no backward op reads it. No later op will read it.
  bool choose_in_place(const std::vector<Value>& reads) {
    const Known* first = find(reads[0]);
    return first != nullptr && !first->saved && dice_.chance(50);
  }

  BackwardShape choose_backward(const std::vector<Value>& reads, const std::vector<Value>& writes,
                                bool in_place) {
    BackwardShape shape;
    shape.inputs = reads;
    for (std::size_t i = in_place ? 1 : 0; i < reads.size(); ++i) {
      if (dice_.chance(50)) shape.saved.push_back(reads[i]);
    }
    for (const Value value : writes) {
      if (dice_.chance(25)) shape.saved.push_back(value);
    }
    shape.joint_parameters = dice_.chance(40);
    shape.in_place = dice_.chance(60);
    shape.workspace = dice_.chance(15);
    shape.key = dice_.between(0, 63);
    return shape;
  }

  void emit(const GraphBuilder::OpDescription& op, const BackwardShape& shape) {
    const Bytes work = shape.workspace ? bytes() : 0;
    builder_.op(op, [=, name = prefix_ + op.name, cost = op.cost](GraphBuilder& builder,
                                                                  const std::vector<Value>& gradients) {
      backward(builder, name, shape, work, cost, gradients);
    });
  }

  void note(const std::vector<Value>& reads, const std::vector<Value>& writes, const BackwardShape& shape,
            bool in_place) {
    for (const Value value : reads) {
      if (Known* known = find(value)) known->read = true;
    }
    for (const Value value : writes) known_.push_back({value, false, false});
    for (const Value value : shape.saved) {
      if (Known* known = find(value)) known->saved = true;
    }
    if (in_place) {
      std::erase_if(known_, [&](const Known& known) { return known.value.id == reads[0].id; });
    }
  }

  // Adds the loss. It reads every value that no op has read, so that every value contributes to it.
  Value add_loss() {
    std::vector<Value> reads;
    for (const Known& known : known_) {
      if (!known.read) reads.push_back(known.value);
    }
    BackwardShape shape;
    shape.inputs = shape.saved = reads;
    const Value loss = builder_.activation("loss", {}, DataType::f64);
    GraphBuilder::OpDescription op{"loss", "mix", {{"key", std::int64_t{1}}}, reads, {loss}, {}, {}};
    op.cost.flops = 1000;
    emit(op, shape);
    return loss;
  }

  // Adds one backward op per gradient, or one for all parameters together. The last op may work on the
  // output's gradient in place.
  static void backward(GraphBuilder& builder, const std::string& name, const BackwardShape& shape, Bytes work,
                       OpCost cost, const std::vector<Value>& gradients) {
    std::vector<std::vector<Value>> parts;  // inputs whose gradients one op writes
    std::vector<Value> joint;
    for (const Value input : shape.inputs) {
      if (!builder.wants_gradient(input)) continue;
      const bool parameter = builder.tensor(input).kind == TensorKind::parameter;
      if (parameter && shape.joint_parameters) {
        joint.push_back(input);
      } else {
        parts.push_back({input});
      }
    }
    if (!joint.empty()) parts.insert(parts.begin(), joint);
    std::reverse(parts.begin(), parts.end());  // the first input's gradient comes last
    for (std::size_t i = 0; i < parts.size(); ++i) {
      add_backward_op(builder, fmt::format("{}.backward{}", name, i), shape, i == 0 ? work : 0, cost,
                      gradients, parts[i], i + 1 == parts.size());
    }
  }

  static void add_backward_op(GraphBuilder& builder, const std::string& name, const BackwardShape& shape,
                              Bytes work, OpCost cost, const std::vector<Value>& gradients,
                              const std::vector<Value>& inputs, bool last) {
    GraphBuilder::OpDescription op{name, "mix", {{"key", shape.key}}, {}, {}, {}, cost};
    for (const Value gradient : gradients) {
      if (gradient) op.reads.push_back(gradient);
    }
    for (const Value saved : shape.saved) op.reads.push_back(saved);
    for (const Value input : inputs) op.writes.push_back(builder.gradient_like(input));
    if (last && shape.in_place) alias_first(builder, op, gradients);
    if (work > 0) op.writes.push_back(builder.workspace(name + ".work", work));
    const std::vector<Value> results(op.writes.begin(),
                                     op.writes.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
    builder.op(op);
    for (std::size_t i = 0; i < inputs.size(); ++i) builder.add_gradient(inputs[i], results[i], true);
  }

  static void alias_first(GraphBuilder& builder, GraphBuilder::OpDescription& op,
                          const std::vector<Value>& gradients) {
    const Tensor& result = builder.tensor(op.writes[0]);
    for (std::uint32_t read = 0; read < op.reads.size(); ++read) {
      const Value value = op.reads[read];
      const Tensor& tensor = builder.tensor(value);
      if (!contains(gradients, value) || !builder.may_overwrite(value)) continue;
      if (tensor.type != result.type || tensor.shape != result.shape) continue;
      op.may_alias.push_back({0, read});
      return;
    }
  }

  Dice dice_;
  RandomGraphOptions options_;
  GraphBuilder builder_;
  std::vector<Value> inputs_;
  std::vector<Value> parameters_;
  std::vector<Known> known_;
  std::vector<std::vector<Known>> known_of_;  // by micro-batch, except the one being built
  std::string prefix_;                        // of the micro-batch's names
};

Link random_link(Dice& dice) { return {dice.log_uniform(1e7, 1e12), dice.log_uniform(1e-7, 1e-3), true}; }

}  // namespace

Graph random_graph(std::uint64_t seed, const RandomGraphOptions& options) {
  return Generator(seed, options).build();
}

Machine random_machine(std::uint64_t seed) {
  Dice dice(seed);
  Machine machine;
  machine.h2d = random_link(dice);
  machine.d2h = dice.chance(50) ? machine.h2d : random_link(dice);
  machine.flops_per_second = dice.log_uniform(1e9, 1e13);
  machine.device_bytes_per_second = dice.log_uniform(1e9, 1e12);
  machine.launch_seconds = dice.log_uniform(1e-7, 1e-4);
  machine.host_bytes_per_second = dice.log_uniform(1e8, 1e11);
  return machine;
}

Machine shared_machine(std::uint64_t seed) {
  Machine machine = random_machine(seed);
  const auto part = [&](std::uint64_t n) { return 0.15 + 0.1 * static_cast<double>((seed / n + n) % 9); };
  machine.h2d_both_bytes_per_second = part(1) * machine.h2d.bytes_per_second;
  machine.d2h_both_bytes_per_second = part(2) * machine.d2h.bytes_per_second;
  machine.host_total_bytes_per_second =
      part(3) * (machine.h2d.bytes_per_second + machine.d2h.bytes_per_second) + machine.host_bytes_per_second;
  if (seed % 4 == 0) machine.compute_beside_copy = part(5);
  if (seed % 4 == 0) machine.compute_beside_host = part(7);
  if (seed % 4 <= 1) machine.host_beside_compute = part(11);
  return machine;
}

Machine any_machine(std::uint64_t seed) {
  return seed % 3 == 2 ? shared_machine(seed) : random_machine(seed);
}

Machine machine_with_peers(std::uint64_t seed) {
  Dice dice(seed + 7919);
  Machine machine = any_machine(seed);
  machine.peer = {machine.h2d.bytes_per_second * dice.log_uniform(0.01, 100), machine.h2d.latency_seconds};
  machine.peer_path = static_cast<PeerPath>(seed / 3 % 3);  // independent of any_machine's choice by the seed
  return machine;
}

Bytes random_budget(std::uint64_t seed, Bytes minimum, Bytes need) {
  Dice dice(seed);
  const std::int64_t draw = dice.between(0, 9);
  if (need <= minimum || draw == 0) return minimum;
  if (draw == 1) return need;
  return minimum + static_cast<Bytes>(dice.between(0, static_cast<std::int64_t>(need - minimum)));
}

}  // namespace stowage::testing
