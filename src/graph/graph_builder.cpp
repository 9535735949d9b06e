#include "stowage/graph_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

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

GraphBuilder::GraphBuilder(DataType work, Trained trained) : work_(work), trained_(trained) {
  if (work != DataType::f32 && work != DataType::bf16 && work != DataType::f16 && work != DataType::f64) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: the work type is {}; use f32, bf16 or f16, or f64 for checks", to_string(work)));
  }
}

// units, scopes, tensors ------------------------------------------------------------------------

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

void GraphBuilder::split_batch(std::uint32_t count, std::uint32_t groups, BatchShare share) {
  require_open("split_batch");
  if (count == graph_.micro_batches && groups == graph_.gradient_groups && share == micro_batch_.share)
    return;
  if (count == 0 || !graph_.unit_names.empty()) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: split_batch({}) makes no parts, or comes behind the first unit; give at least 1, and "
        "call it first",
        count));
  }
  if (!are_gradient_groups(groups, count)) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: split_batch({}, {}): {} groups of micro-batches; give a power of two that divides {}",
        count, groups, groups, count));
  }
  if (share.rank >= share.ranks || !std::has_single_bit(share.ranks)) {
    throw InvalidInput(
        fmt::format("GraphBuilder: split_batch for rank {} of {}; ranks count from 0, and are a power of two",
                    share.rank, share.ranks));
  }
  graph_.micro_batches = count;
  graph_.gradient_groups = groups;
  graph_.share = share;
  micro_batch_ = {0, count, share};
  loss_ = TreeSum<Value>(count, groups);
}

void GraphBuilder::code_activations(std::optional<CodeBits> bits) {
  require_open("code_activations");
  if (bits && work_ == DataType::f64)
    throw InvalidInput("GraphBuilder: activations of f64 are not coded; use f32, bf16 or f16");
  code_bits_ = bits;
}

void GraphBuilder::begin_unit(std::string name, std::uint32_t micro_batch) {
  require_open(name);
  require_unit_used();
  unit_ = static_cast<std::uint32_t>(graph_.unit_names.size());
  if (micro_batch != graph_.micro_batch_of(unit_) || (micro_batch > 0 && name != half_block_)) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: micro-batch {} of '{}' is not the next of {}; build each half-block for all of them, "
        "in order",
        micro_batch, name, graph_.micro_batches));
  }
  micro_batch_.index = micro_batch;
  half_block_ = std::move(name);
  graph_.unit_names.push_back(micro_batch_prefix() + half_block_);
}

void GraphBuilder::push_scope(std::string name) { scopes_.push_back(std::move(name)); }

void GraphBuilder::pop_scope() {
  if (scopes_.empty()) throw InvalidInput("GraphBuilder: pop_scope without push_scope; pair them");
  scopes_.pop_back();
}

std::string GraphBuilder::micro_batch_prefix() const {
  return micro_batch_.count > 1 ? fmt::format("micro.{}.", micro_batch_.index) : "";
}

std::string GraphBuilder::shared(const std::string& name) const {
  std::string full;
  if (phase_ == Phase::forward) {
    for (const std::string& scope : scopes_) full += scope + ".";
  }
  return full + name;
}

std::string GraphBuilder::scoped(const std::string& name) const {
  return phase_ == Phase::forward ? micro_batch_prefix() + shared(name) : name;
}

Value GraphBuilder::add_tensor(Tensor tensor) {
  require_open(tensor.name);
  if (!checked_bytes(tensor.shape, tensor.type)) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: the shape {} of '{}' has a dimension below 1 or overflows; use smaller, positive ones",
        describe(tensor.shape), tensor.name));
  }
  wants_gradient_.push_back(tensor.kind == TensorKind::parameter && tensor.trained);
  gradients_.emplace_back();
  gradient_tensors_.push_back(0);
  producers_.push_back(no_id);
  is_loss_.push_back(false);
  graph_.tensors.push_back(std::move(tensor));
  return {static_cast<TensorId>(graph_.tensors.size() - 1)};
}

Value GraphBuilder::parameter(std::string name, std::vector<std::int64_t> shape, Initializer initializer) {
  if (trained_ == Trained::none) return frozen_parameter(std::move(name), std::move(shape), initializer);
  return add_parameter({shared(name), work_, std::move(shape), TensorKind::parameter, initializer});
}

Value GraphBuilder::frozen_parameter(std::string name, std::vector<std::int64_t> shape,
                                     Initializer initializer) {
  Tensor tensor{shared(name), work_, std::move(shape), TensorKind::parameter, initializer};
  tensor.trained = false;
  return add_parameter(std::move(tensor));
}

Value GraphBuilder::add_parameter(Tensor tensor) {
  if (micro_batch_.index == 0) {
    const Value made = add_tensor(std::move(tensor));
    parameters_.try_emplace(graph_.tensors[made.id].name, made.id);
    return made;
  }
  const auto found = parameters_.find(tensor.name);
  if (found == parameters_.end() || graph_.tensors[found->second] != tensor) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: micro-batch {} has its own parameter '{}'; build micro-batches alike, from one on",
        micro_batch_.index, tensor.name));
  }
  return {found->second};
}

Value GraphBuilder::input(std::string name, std::vector<std::int64_t> shape, DataType type) {
  return add_tensor({shared(name), type, std::move(shape), TensorKind::input, {}});
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

// ops -------------------------------------------------------------------------------------------

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
        description.cost,
        description.replayable};
  for (const Alias& alias : op.may_alias) check_alias(op, alias);
  if (op.cost.bytes == 0) op.cost.bytes = operand_bytes(graph_, op);
  record_writes(op);
  if (phase_ == Phase::forward) {
    rules_.push_back(std::move(backward));
    turns_.push_back(description.writes_gradients || depends_on_turned(op));
  }
  graph_.ops.push_back(std::move(op));
}

Value GraphBuilder::add_loss(Value sum, Value part) {
  for (Value loss : {sum, part}) {
    if (tensor(loss).type == DataType::f64 && tensor(loss).shape.empty()) continue;
    throw InvalidInput(fmt::format("GraphBuilder: '{}' is no loss; add f64 scalars", tensor(loss).name));
  }
  const std::string name = graph_.tensors[part.id].name + ".sum";
  const Value result = add_tensor({name, DataType::f64, {}, TensorKind::activation, {}});
  const std::string prefix = scoped("");
  op({name.starts_with(prefix) ? name.substr(prefix.size()) : name,
      "add_loss",
      {},
      {sum, part},
      {result},
      {},
      {1, 0}},
     [](GraphBuilder&, const std::vector<Value>&) {});
  for (Value loss : {sum, part, result}) is_loss_[loss.id] = true;
  return result;
}

Value GraphBuilder::sum_loss(Value of_micro_batch) {
  if (micro_batch_.count == 1) return of_micro_batch;
  if (micro_batch_.index != losses_++) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: '{}' is not the loss of the next micro-batch; call sum_loss once in each, in order",
        tensor(of_micro_batch).name));
  }
  Value so_far = of_micro_batch;
  loss_.add(of_micro_batch, [&](Value sum, Value part) { return so_far = add_loss(sum, part); });
  return so_far;
}

void GraphBuilder::add_random_stream(Attributes& attributes, const std::string& name, std::int64_t elements) {
  const auto next = static_cast<std::int64_t>(random_keys_.size());
  attributes["key"] = random_keys_.try_emplace(shared(name), next).first->second;
  if (micro_batch_.part() > 0) attributes["first_element"] = elements * micro_batch_.part();
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

// gradients -------------------------------------------------------------------------------------

bool GraphBuilder::wants_gradient(Value of) const { return of && wants_gradient_[of.id]; }

Value GraphBuilder::gradient_like(Value of) {
  const Tensor& source = tensor(of);
  std::uint32_t part = gradient_tensors_[of.id]++;
  std::string name = source.name + (part == 0 ? ".grad" : fmt::format(".grad.{}", part));
  bool of_parameter = source.kind == TensorKind::parameter;
  return add_tensor({std::move(name),
                     source.type,
                     source.shape,
                     of_parameter ? TensorKind::gradient : TensorKind::activation,
                     {}});
}

void GraphBuilder::add_gradient(Value of, Value gradient, bool fresh) {
  require_fitting(of, gradient);
  if (tensor(of).kind == TensorKind::parameter) {
    add_to_use(of, gradient, fresh);
  } else {
    require_still_wanted(of);
    gradients_[of.id] = added(gradients_[of.id], of, {gradient, fresh});
  }
}

Value GraphBuilder::gradient_so_far(Value of) const {
  return tensor(of).kind == TensorKind::activation ? gradients_[of.id].value : Value{};
}

bool GraphBuilder::is_fresh_so_far(Value of) const { return gradient_so_far(of) && gradients_[of.id].fresh; }

void GraphBuilder::set_gradient(Value of, Value sum) {
  require_fitting(of, sum);
  if (tensor(of).kind != TensorKind::activation) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: '{}' is no activation, so its gradient is summed in a fixed order; use add_gradient",
        tensor(of).name));
  }
  require_still_wanted(of);
  gradients_[of.id] = {sum, true};
}

void GraphBuilder::require_fitting(Value of, Value gradient) const {
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
}

// Adds up the use's gradients of all micro-batches, then adds the sum to the other uses.
void GraphBuilder::add_to_use(Value of, Value gradient, bool fresh) {
  if (micro_batch_.count == 1) return add_use(of, {gradient, fresh});
  Use& use = uses_[{of.id, uses_seen_[of.id]++}];
  if (use.micro_batches++ == 0) use.sum = TreeSum<Gradient>(micro_batch_.count, graph_.gradient_groups);
  use.sum.add(
      {gradient, fresh}, [&](Gradient sum, Gradient more) { return added(sum, of, more); },
      [&](Gradient left, Gradient right) { return accumulated(of, left, right); });
  if (const std::optional<Gradient> total = use.sum.total()) add_use(of, *total);
}

void GraphBuilder::add_use(Value of, Gradient gradient) {
  use_gradients_[of.id].push_back(gradient.value.id);
  // Several ranks add up every use by itself (share_state.h).
  gradients_[of.id] =
      graph_.share.ranks > 1 ? Gradient{gradient.value, false} : added(gradients_[of.id], of, gradient);
}

void GraphBuilder::require_uses_whole() {
  for (const auto& [key, use] : uses_) {
    if (use.micro_batches == micro_batch_.count) continue;
    throw InvalidInput(
        fmt::format("GraphBuilder: {} of {} micro-batches use '{}' in one place; build them alike",
                    use.micro_batches, micro_batch_.count, graph_.tensors[key.first].name));
  }
  uses_.clear();
}

void GraphBuilder::require_still_wanted(Value of) const {
  const OpId producer = producers_[of.id];
  if (producer == no_id || micro_batch_.count == 1) return;
  const std::uint32_t unit = graph_.ops[producer].unit;
  if (graph_.half_block_of(unit) < graph_.half_block_of(unit_) ||
      (graph_.half_block_of(unit) == graph_.half_block_of(unit_) && unit >= unit_))
    return;
  throw InvalidInput(fmt::format(
      "GraphBuilder: '{}' goes from one micro-batch to a later one of its half-block; begin a new one",
      graph_.tensors[of.id].name));
}

// Returns `before`, if there is any, plus `more`. Adds tensors, which invalidates references into gradients_.
GraphBuilder::Gradient GraphBuilder::added(Gradient before, Value of, Gradient more) {
  if (!before.value) return more;
  if (!before.fresh && more.fresh) std::swap(before, more);
  return accumulated(of, before, more);
}

// Adds in place if `into` is fresh.
GraphBuilder::Gradient GraphBuilder::accumulated(Value of, Gradient into, Gradient more) {
  const Value sum = gradient_like(of);
  std::vector<Alias> aliases;
  if (into.fresh) aliases.push_back({0, 0});
  auto flops = static_cast<double>(tensor(sum).elements());
  op({tensor(sum).name + ".accumulate",
      "accumulate",
      {},
      {into.value, more.value},
      {sum},
      std::move(aliases),
      {flops, 0}});
  return {sum, true};
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

std::vector<TensorId> GraphBuilder::use_gradients_of(Value parameter) const {
  const auto found = use_gradients_.find(parameter.id);
  return found == use_gradients_.end() ? std::vector<TensorId>{} : found->second;
}

}  // namespace stowage
