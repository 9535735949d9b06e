#include "stowage/graph_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/graph/shape.h"
#include "src/graph/update_ops.h"
#include "stowage/error.h"

namespace stowage {
namespace {

std::vector<TensorId> ids(const std::vector<Value>& values) {
  std::vector<TensorId> all;
  for (Value value : values) all.push_back(value.id);
  return all;
}

}  // namespace

GraphBuilder::GraphBuilder(DataType work) : work_(work) {
  if (work != DataType::f32 && work != DataType::bf16 && work != DataType::f64) {
    throw InvalidInput(fmt::format("GraphBuilder: the work type is {}; use f32 or bf16, or f64 for checks",
                                   to_string(work)));
  }
}

// --- units, scopes, tensors ------------------------------------------------------------------------

void GraphBuilder::require_open(const std::string& what) const {
  if (spent_)
    throw InvalidInput(fmt::format("GraphBuilder: '{}' comes after finish; use a new builder", what));
}

void GraphBuilder::require_unit_used() const {
  if (unit_ != no_id && (graph_.ops.empty() || graph_.ops.back().unit != unit_)) {
    throw InvalidInput(fmt::format("GraphBuilder: unit '{}' has no op; give it one or leave it out",
                                   graph_.unit_names[unit_]));
  }
}

void GraphBuilder::begin_unit(std::string name) {
  require_open(name);
  require_unit_used();
  unit_ = static_cast<std::uint32_t>(graph_.unit_names.size());
  graph_.unit_names.push_back(std::move(name));
}

void GraphBuilder::push_scope(std::string name) { scopes_.push_back(std::move(name)); }

void GraphBuilder::pop_scope() {
  if (scopes_.empty()) throw InvalidInput("GraphBuilder: pop_scope without push_scope; pair them");
  scopes_.pop_back();
}

std::string GraphBuilder::scoped(const std::string& name) const {
  std::string full;
  if (phase_ == Phase::forward) {
    for (const std::string& scope : scopes_) full += scope + ".";
  }
  return full + name;
}

Value GraphBuilder::add_tensor(Tensor tensor) {
  require_open(tensor.name);
  if (!checked_bytes(tensor.shape, tensor.type)) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: the shape {} of '{}' has a dimension below 1 or overflows; use smaller, positive ones",
        describe(tensor.shape), tensor.name));
  }
  wants_gradient_.push_back(tensor.kind == TensorKind::parameter);
  gradients_.emplace_back();
  producers_.push_back(no_id);
  graph_.tensors.push_back(std::move(tensor));
  return {static_cast<TensorId>(graph_.tensors.size() - 1)};
}

Value GraphBuilder::parameter(std::string name, std::vector<std::int64_t> shape, Initializer initializer) {
  return add_tensor({scoped(name), work_, std::move(shape), TensorKind::parameter, initializer});
}

Value GraphBuilder::input(std::string name, std::vector<std::int64_t> shape, DataType type) {
  return add_tensor({scoped(name), type, std::move(shape), TensorKind::input, {}});
}

Value GraphBuilder::activation(std::string name, std::vector<std::int64_t> shape,
                               std::optional<DataType> type) {
  return add_tensor({scoped(name), type.value_or(work_), std::move(shape), TensorKind::activation, {}});
}

Value GraphBuilder::workspace(std::string name, Bytes bytes) {
  auto elements = static_cast<std::int64_t>((bytes + size_of(DataType::i32) - 1) / size_of(DataType::i32));
  return add_tensor({scoped(name), DataType::i32, {elements}, TensorKind::workspace, {}});
}

const Tensor& GraphBuilder::tensor(Value value) const {
  if (value.id >= graph_.tensors.size()) {
    throw InvalidInput("GraphBuilder: an empty Value, or one of another builder, where a tensor is needed");
  }
  return graph_.tensors[value.id];
}

// --- ops -------------------------------------------------------------------------------------------

void GraphBuilder::op(OpDescription description, BackwardRule backward) {
  std::string name = scoped(description.name);
  require_open(name);
  if (backward && phase_ != Phase::forward) {
    throw InvalidInput(
        fmt::format("op '{}' is no forward op but has a backward rule; leave the rule out", name));
  }
  for (Value value : description.reads) tensor(value);
  for (Value value : description.writes) tensor(value);
  if (phase_ == Phase::forward && unit_ == no_id) begin_unit("step");
  Op op{name,
        std::move(description.kernel),
        std::move(description.attributes),
        ids(description.reads),
        ids(description.writes),
        std::move(description.may_alias),
        phase_,
        phase_ == Phase::update ? no_id : unit_,
        description.cost};
  for (const Alias& alias : op.may_alias) check_alias(op, alias);
  if (op.cost.bytes == 0) op.cost.bytes = operand_bytes(graph_, op);
  record_writes(op);
  if (description.writes_gradients) writes_gradients_ = static_cast<OpId>(graph_.ops.size());
  graph_.ops.push_back(std::move(op));
  if (phase_ == Phase::forward) rules_.push_back(std::move(backward));
}

void GraphBuilder::check_alias(const Op& op, const Alias& alias) const {
  if (alias.write >= op.writes.size() || alias.read >= op.reads.size()) {
    throw InvalidInput(
        fmt::format("op '{}': an alias names an operand that does not exist; correct it", op.name));
  }
  const Tensor& write = graph_.tensors[op.writes[alias.write]];
  const Tensor& read = graph_.tensors[op.reads[alias.read]];
  if (write.type != read.type || write.shape != read.shape) {
    throw InvalidInput(fmt::format("op '{}': '{}' {} may not alias '{}' {}; give them one shape and type",
                                   op.name, write.name, describe(write.shape), read.name,
                                   describe(read.shape)));
  }
}

void GraphBuilder::record_writes(const Op& op) {
  bool wants =
      std::any_of(op.reads.begin(), op.reads.end(), [&](TensorId id) { return wants_gradient_[id]; });
  for (TensorId id : op.writes) {
    if (phase_ != Phase::update && producers_[id] != no_id) {
      throw InvalidInput(fmt::format("op '{}' writes '{}', which op '{}' writes already; use a new tensor",
                                     op.name, graph_.tensors[id].name, graph_.ops[producers_[id]].name));
    }
    producers_[id] = static_cast<OpId>(graph_.ops.size());
    const Tensor& written = graph_.tensors[id];
    wants_gradient_[id] = phase_ == Phase::forward && wants && written.kind == TensorKind::activation &&
                          written.type != DataType::i32;
  }
}

// --- gradients -------------------------------------------------------------------------------------

bool GraphBuilder::wants_gradient(Value of) const { return of && wants_gradient_[of.id]; }

Value GraphBuilder::gradient_like(Value of) {
  const Tensor& source = tensor(of);
  std::uint32_t part = gradients_[of.id].parts++;
  std::string name = source.name + (part == 0 ? ".grad" : fmt::format(".grad.{}", part));
  bool of_parameter = source.kind == TensorKind::parameter;
  return add_tensor({std::move(name),
                     source.type,
                     source.shape,
                     of_parameter ? TensorKind::gradient : TensorKind::activation,
                     {}});
}

void GraphBuilder::add_gradient(Value of, Value gradient, bool fresh) {
  const Tensor& target = tensor(of);
  const Tensor& given = tensor(gradient);
  if (running_ == no_id || !wants_gradient_[of.id]) {
    throw InvalidInput(
        fmt::format("GraphBuilder: '{}' wants no gradient here; ask wants_gradient first, in a backward rule",
                    target.name));
  }
  if (target.type != given.type || target.shape != given.shape) {
    throw InvalidInput(
        fmt::format("GraphBuilder: the gradient '{}' {} does not fit '{}' {}; give it its shape", given.name,
                    describe(given.shape), target.name, describe(target.shape)));
  }
  if (producers_[gradient.id] == no_id || graph_.ops[producers_[gradient.id]].phase != Phase::backward) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: no backward op writes the gradient '{}'; append its op first", given.name));
  }
  Gradient& sum = gradients_[of.id];
  if (sum.value) {
    accumulate(of, gradient, fresh);
  } else {
    sum.value = gradient;
    sum.fresh = fresh;
  }
}

void GraphBuilder::accumulate(Value of, Value gradient, bool fresh) {
  Gradient before = gradients_[of.id];
  Value sum = gradient_like(of);
  std::vector<Value> reads{before.value, gradient};
  if (!before.fresh && fresh) std::swap(reads[0], reads[1]);
  std::vector<Alias> aliases;
  if (before.fresh || fresh) aliases.push_back({0, 0});
  auto flops = static_cast<double>(tensor(sum).elements());
  op({tensor(sum).name + ".accumulate",
      "accumulate",
      {},
      std::move(reads),
      {sum},
      std::move(aliases),
      {flops, 0}});
  gradients_[of.id].value = sum;
  gradients_[of.id].fresh = true;
}

bool GraphBuilder::may_overwrite(Value gradient) const {
  if (running_ == no_id || !gradient) return false;
  const std::vector<TensorId>& written = graph_.ops[running_].writes;
  return std::count_if(written.begin(), written.end(), [&](TensorId id) {
           return gradients_[id].value.id == gradient.id && gradients_[id].fresh;
         }) == 1;
}

TensorId GraphBuilder::gradient_of(Value of) const {
  return of.id < gradients_.size() ? gradients_[of.id].value.id : no_id;
}

// --- finishing -------------------------------------------------------------------------------------

Graph GraphBuilder::finish_without_update(Value loss) {
  backward(loss);
  return close();
}

Graph GraphBuilder::finish(Value loss, const AdamW& optimizer) {
  backward(loss);
  update(optimizer);
  return close();
}

Graph GraphBuilder::close() {
  spent_ = true;
  check(graph_);
  return graph_;
}

void GraphBuilder::backward(Value loss) {
  const Tensor& scalar = tensor(loss);
  require_open(scalar.name);
  require_unit_used();
  if (scalar.type != DataType::f64 || !scalar.shape.empty() || producers_[loss.id] == no_id) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: the loss '{}' is not an f64 scalar that an op writes; use one", scalar.name));
  }
  graph_.loss = loss.id;
  if (writes_gradients_ != no_id) move_to_backward(loss);
  phase_ = Phase::backward;
  for (auto op = static_cast<OpId>(graph_.ops.size()); op-- > 0;) run_rule(op, loss);
  running_ = no_id;
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    Value gradient = gradients_[id].value;
    if (gradient && graph_.tensors[id].kind == TensorKind::parameter) {
      graph_.tensors[gradient.id].kind = TensorKind::gradient;  // also one that was passed through
    }
  }
}

void GraphBuilder::move_to_backward(Value loss) {
  Op& op = graph_.ops[writes_gradients_];
  if (producers_[loss.id] != writes_gradients_ || &op != &graph_.ops.back()) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: op '{}' writes gradients too, so its result must be the loss and nothing may come "
        "behind it; move it to the end",
        op.name));
  }
  op.phase = Phase::backward;
}

void GraphBuilder::run_rule(OpId op, Value loss) {
  bool reached = producers_[loss.id] == op;
  bool wanted = false;
  std::vector<Value> gradients;
  for (TensorId id : graph_.ops[op].writes) {
    gradients.push_back(gradients_[id].value);
    reached = reached || gradients.back();
    wanted = wanted || wants_gradient_[id];
  }
  if (!reached || !wanted) return;
  if (!rules_[op]) {
    throw InvalidInput(fmt::format("op '{}' has no backward rule, but the loss depends on it; give it one",
                                   graph_.ops[op].name));
  }
  running_ = op;
  unit_ = graph_.ops[op].unit;
  BackwardRule rule = std::move(rules_[op]);
  rule(*this, gradients);
}

void GraphBuilder::update(const AdamW& optimizer) {
  std::vector<TensorId> gradients(graph_.tensors.size(), no_id);
  for (TensorId parameter : parameters_by_first_use(graph_)) {
    gradients[parameter] = gradients_[parameter].value.id;
    if (gradients[parameter] == no_id) {
      throw InvalidInput(
          fmt::format("GraphBuilder: no gradient reaches the parameter '{}'; use it, or leave it out",
                      graph_.tensors[parameter].name));
    }
  }
  append_update(graph_, gradients, optimizer);
}

}  // namespace stowage
