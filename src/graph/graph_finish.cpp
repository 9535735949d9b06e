// GraphBuilder::finish: backward ops unit by unit, then the update.
#include <fmt/format.h>

#include <algorithm>

#include "src/graph/share_state.h"
#include "src/graph/update_ops.h"
#include "stowage/coded_activations.h"
#include "stowage/error.h"
#include "stowage/graph_builder.h"

namespace stowage {

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
      graph_.tensors[gradient.id].kind = TensorKind::gradient;  // also a gradient that was passed through
    }
  }
  if (code_bits_) graph_ = with_coded_activations(graph_, *code_bits_);
}

std::uint32_t GraphBuilder::half_blocks() const {
  return static_cast<std::uint32_t>(graph_.unit_names.size()) / graph_.micro_batches;
}

// Adds a unit's ops that turned from forward to backward, then runs the rules from the last forward op to
// the first.
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

// Removes from the forward phase the ops that turn to backward, and returns them.
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

void GraphBuilder::update(const AdamW& optimizer) {
  std::vector<FinalGradient> gradients(graph_.tensors.size());
  for (TensorId parameter : trained_by_first_use(graph_)) {
    gradients[parameter] = {gradients_[parameter].value.id, graph_.tensors[parameter].elements()};
    if (gradients[parameter].tensor == no_id) {
      throw InvalidInput(
          fmt::format("GraphBuilder: no gradient reaches the parameter '{}'; use it, leave it out, or make "
                      "it a frozen_parameter",
                      graph_.tensors[parameter].name));
    }
  }
  if (graph_.share.ranks > 1) gradients = share_state(graph_, use_gradients_);
  append_update(graph_, gradients, optimizer);
}

}  // namespace stowage
