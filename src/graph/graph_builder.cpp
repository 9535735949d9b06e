#include "stowage/graph_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/graph/shape.h"
#include "stowage/error.h"

namespace stowage {
namespace {

double operand_bytes(const Graph& graph, const Op& op) {
  double bytes = 0;
  for (TensorId tensor : op.reads) bytes += static_cast<double>(graph.tensors[tensor].bytes());
  for (TensorId tensor : op.writes) bytes += static_cast<double>(graph.tensors[tensor].bytes());
  return bytes;
}

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

void GraphBuilder::split_batch(std::uint32_t count) {
  require_open("split_batch");
  if (count == graph_.micro_batches) return;
  if (count == 0 || !graph_.unit_names.empty()) {
    throw InvalidInput(fmt::format(
        "GraphBuilder: split_batch({}) makes no parts, or comes behind the first unit; give at least 1, and "
        "call it first",
        count));
  }
  graph_.micro_batches = count;
  micro_batch_ = {0, count};
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
  wants_gradient_.push_back(tensor.kind == TensorKind::parameter);
  gradients_.emplace_back();
  gradient_tensors_.push_back(0);
  producers_.push_back(no_id);
  is_loss_.push_back(false);
  graph_.tensors.push_back(std::move(tensor));
  return {static_cast<TensorId>(graph_.tensors.size() - 1)};
}

Value GraphBuilder::parameter(std::string name, std::vector<std::int64_t> shape, Initializer initializer) {
  Tensor tensor{shared(name), work_, std::move(shape), TensorKind::parameter, initializer};
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

void GraphBuilder::add_random_stream(Attributes& attributes, const std::string& name, std::int64_t elements) {
  const auto next = static_cast<std::int64_t>(random_keys_.size());
  attributes["key"] = random_keys_.try_emplace(shared(name), next).first->second;
  if (micro_batch_.index > 0) attributes["skipped"] = (elements + 3) / 4 * micro_batch_.index;
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
  if (micro_batch_.count > 1 && target.kind == TensorKind::parameter) {
    add_to_use(of, gradient, fresh);
  } else {
    require_still_wanted(of);
    gradients_[of.id] = added(gradients_[of.id], of, {gradient, fresh});
  }
}

// All micro-batches of the use, then it joins the others.
void GraphBuilder::add_to_use(Value of, Value gradient, bool fresh) {
  Use& use = uses_[{of.id, uses_seen_[of.id]++}];
  use.sum = added(use.sum, of, {gradient, fresh});
  if (++use.micro_batches == micro_batch_.count) gradients_[of.id] = added(gradients_[of.id], of, use.sum);
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

// `before`, if there is any, plus `more`. Adds tensors, so that a reference into gradients_ may not stand.
GraphBuilder::Gradient GraphBuilder::added(Gradient before, Value of, Gradient more) {
  if (!before.value) return more;
  const Value sum = gradient_like(of);
  std::vector<Value> reads{before.value, more.value};
  if (!before.fresh && more.fresh) std::swap(reads[0], reads[1]);
  std::vector<Alias> aliases;
  if (before.fresh || more.fresh) aliases.push_back({0, 0});
  auto flops = static_cast<double>(tensor(sum).elements());
  op({tensor(sum).name + ".accumulate",
      "accumulate",
      {},
      std::move(reads),
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
  is_loss_[loss.id] = true;
  if (graph_.unit_names.size() % graph_.micro_batches != 0) {
    throw InvalidInput(
        fmt::format("GraphBuilder: '{}' lacks the last of its {} micro-batches; build them all", half_block_,
                    graph_.micro_batches));
  }
  std::vector<Turned> turned = take_turned();
  phase_ = Phase::backward;
  const auto forward_end = static_cast<OpId>(graph_.ops.size());
  for (std::uint32_t block = half_blocks(); block-- > 0;) {
    for (std::uint32_t part = 0; part < graph_.micro_batches; ++part)
      backward_unit(block * graph_.micro_batches + part, turned, forward_end);
    require_uses_whole();
  }
  running_ = no_id;
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    Value gradient = gradients_[id].value;
    if (gradient && graph_.tensors[id].kind == TensorKind::parameter) {
      graph_.tensors[gradient.id].kind = TensorKind::gradient;  // also one that was passed through
    }
  }
}

std::uint32_t GraphBuilder::half_blocks() const {
  return static_cast<std::uint32_t>(graph_.unit_names.size()) / graph_.micro_batches;
}

// What turned from forward to backward comes first, then the rules from the last forward op to the first.
void GraphBuilder::backward_unit(std::uint32_t unit, std::vector<Turned>& turned, OpId forward_end) {
  unit_ = unit;
  micro_batch_.index = graph_.micro_batch_of(unit);
  uses_seen_.clear();
  for (Turned& of : turned) {
    if (of.op.unit != unit) continue;
    const auto id = static_cast<OpId>(graph_.ops.size());
    for (TensorId written : of.op.writes) producers_[written] = id;
    graph_.ops.push_back(std::move(of.op));
    rules_.resize(graph_.ops.size());
    rules_[id] = std::move(of.rule);
    run_rule(id);
  }
  const auto by_unit = [](const Op& op, std::uint32_t wanted) { return op.unit < wanted; };
  const auto first = graph_.ops.begin();
  const auto begin = std::lower_bound(first, first + forward_end, unit, by_unit) - first;
  const auto end = std::lower_bound(first, first + forward_end, unit + 1, by_unit) - first;
  for (auto op = static_cast<OpId>(end); op-- > static_cast<OpId>(begin);) run_rule(op);
}

bool GraphBuilder::depends_on_turned(const Op& op) const {
  return std::any_of(op.reads.begin(), op.reads.end(), [&](TensorId id) {
    return producers_[id] != no_id && producers_[id] < turns_.size() && turns_[producers_[id]];
  });
}

void GraphBuilder::require_turnable(OpId id) const {
  const Op& op = graph_.ops[id];
  const bool behind = id + 1 < graph_.ops.size() && graph_.ops[id + 1].unit == op.unit && !turns_[id + 1];
  const bool last_block = graph_.half_block_of(op.unit) + 1 == half_blocks();
  const bool takes_part =
      std::any_of(op.writes.begin(), op.writes.end(), [&](TensorId written) { return is_loss_[written]; });
  if (last_block && takes_part && !behind) return;
  throw InvalidInput(
      fmt::format("GraphBuilder: op '{}' writes gradients too, so its result must be the loss and nothing "
                  "may come behind "
                  "it in the last half-block; move it to the end",
                  op.name));
}

// Takes those ops out of the forward phase.
std::vector<GraphBuilder::Turned> GraphBuilder::take_turned() {
  std::vector<Turned> turned;
  std::vector<Op> ops;
  std::vector<BackwardRule> rules;
  for (OpId id = 0; id < graph_.ops.size(); ++id)
    if (turns_[id]) require_turnable(id);
  for (OpId id = 0; id < graph_.ops.size(); ++id) {
    Op& op = graph_.ops[id];
    for (TensorId written : op.writes) producers_[written] = static_cast<OpId>(ops.size());
    if (turns_[id]) {
      op.phase = Phase::backward;
      turned.push_back({std::move(op), std::move(rules_[id])});
    } else {
      ops.push_back(std::move(op));
      rules.push_back(std::move(rules_[id]));
    }
  }
  graph_.ops = std::move(ops);
  rules_ = std::move(rules);
  return turned;
}

void GraphBuilder::run_rule(OpId op) {
  bool reached = false;
  bool wanted = false;
  std::vector<Value> gradients;
  for (TensorId id : graph_.ops[op].writes) {
    gradients.push_back(gradients_[id].value);
    reached = reached || is_loss_[id] || gradients.back();
    wanted = wanted || wants_gradient_[id];
  }
  if (!reached || !wanted) return;
  if (!rules_[op]) {
    throw InvalidInput(fmt::format("op '{}' has no backward rule, but the loss depends on it; give it one",
                                   graph_.ops[op].name));
  }
  running_ = op;
  BackwardRule rule = std::move(rules_[op]);
  rule(*this, gradients);
}

std::vector<TensorId> GraphBuilder::parameters_by_first_use() const {
  std::vector<TensorId> parameters;
  std::vector<bool> seen(graph_.tensors.size());
  auto visit = [&](TensorId id) {
    if (graph_.tensors[id].kind != TensorKind::parameter || seen[id]) return;
    seen[id] = true;
    parameters.push_back(id);
  };
  for (const Op& op : graph_.ops) std::for_each(op.reads.begin(), op.reads.end(), visit);
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) visit(id);
  return parameters;
}

void GraphBuilder::update(const AdamW& optimizer) {
  std::vector<TensorId> parameters = parameters_by_first_use();
  std::vector<Value> sums;
  std::vector<Op> ops;
  for (TensorId parameter : parameters) {
    if (!gradients_[parameter].value) {
      throw InvalidInput(
          fmt::format("GraphBuilder: no gradient reaches the parameter '{}'; use it, or leave it out",
                      graph_.tensors[parameter].name));
    }
    sums.push_back(add_square_sum(parameter));
    ops.push_back(std::move(graph_.ops.back()));
    graph_.ops.pop_back();
  }
  insert_after_producers(std::move(ops));
  phase_ = Phase::update;
  Value clip = activation("clip", {2}, DataType::f64);
  op({"clip", "clip", {{"clip", optimizer.clip}}, sums, {clip}, {}, {static_cast<double>(sums.size()), 0}});
  graph_.clip = clip.id;
  for (TensorId parameter : parameters) add_adamw(parameter, optimizer, clip);
}

Value GraphBuilder::add_square_sum(TensorId parameter) {
  std::string name = graph_.tensors[parameter].name + ".grad.square_sum";
  Value gradient = gradients_[parameter].value;
  unit_ = graph_.ops[producers_[gradient.id]].unit;
  Value sum = activation(name, {}, DataType::f64);
  auto flops = 2 * static_cast<double>(tensor(gradient).elements());
  op({name, "square_sum", {}, {gradient}, {sum}, {}, {flops, 0}});
  return sum;
}

// Each of `ops` reads one gradient and goes directly behind the op that writes it.
void GraphBuilder::insert_after_producers(std::vector<Op> ops) {
  std::vector<std::vector<Op>> behind(graph_.ops.size());
  for (Op& op : ops) behind[producers_[op.reads[0]]].push_back(std::move(op));
  std::vector<Op> all;
  for (OpId id = 0; id < behind.size(); ++id) {
    all.push_back(std::move(graph_.ops[id]));
    for (Op& op : behind[id]) all.push_back(std::move(op));
  }
  graph_.ops = std::move(all);
}

void GraphBuilder::add_adamw(TensorId parameter, const AdamW& optimizer, Value clip) {
  Tensor source = graph_.tensors[parameter];
  Value p{parameter};
  Value gradient = gradients_[parameter].value;
  auto state = [&](const char* suffix, DataType type) {
    return add_tensor({source.name + suffix, type, source.shape, TensorKind::optimizer_state, {}});
  };
  std::vector<Value> kept{p, state(".adam_m", sum_type()), state(".adam_v", sum_type())};
  std::vector<Value> reads{p, gradient, kept[1], kept[2], clip};
  if (work_ == DataType::bf16) {  // the other half of the master weight
    kept.push_back(state(".low", DataType::i16));
    reads.push_back(kept.back());
  }
  Attributes attributes{{"beta1", optimizer.beta1},
                        {"beta2", optimizer.beta2},
                        {"epsilon", optimizer.epsilon},
                        {"weight_decay", source.shape.size() < 2 ? 0.0 : optimizer.weight_decay}};
  auto flops = 16 * static_cast<double>(source.elements());
  op({source.name + ".adamw",
      "adamw",
      std::move(attributes),
      std::move(reads),
      std::move(kept),
      {},
      {flops, 0}});
}

}  // namespace stowage
