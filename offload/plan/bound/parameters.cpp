#include <map>

#include "offload/plan/bound/program.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

// A parameter with its state, its gradient and its update.
struct Parameter {
  Bytes bytes = 0, state_bytes = 0;
  Bytes gradient_bytes = 0;            // bytes of the gradient if it is made behind the turn, else 0
  Bytes gate_bytes = 0;                // bytes of the gradient, wherever it is made
  Bytes undo_bytes = 0;                // bytes of the undo record, if the update is early
  double host_update = 0, update = 0;  // seconds of a host update, and of one on the device
  double early_update = 0;             // seconds of an early update on the host; meaningful if can_be_early
  bool can_be_early = true;
  bool in_front = false, in_back = false;  // some op of the front (back) reads the parameter
  OpId first = no_id, last = no_id;        // the first and last op that read the parameter
  OpId gradient_op = no_id;                // the op that makes the final gradient
  TensorId gradient = no_id;
};

class ParameterDecisions {
 public:
  explicit ParameterDecisions(const BoundCosts& costs)
      : costs_(costs), rows_(costs.rows()), graph_(costs.graph()) {}

  std::vector<ShareDecision> make() {
    std::vector<OpId> made_by(graph_.tensors.size(), no_id);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) {
        add_update(graph_.op(op), made_by);
        continue;
      }
      for (TensorId id : graph_.op(op).writes) made_by[id] = op;
      for (TensorId id : graph_.op(op).reads) {
        if (graph_.tensor(id).kind != TensorKind::parameter) continue;
        Parameter& parameter = parameters_[id];
        parameter.bytes = graph_.tensor(id).bytes();
        parameter.can_be_early &= graph_.is_trained(id);
        (rows_.in_front(op) ? parameter.in_front : parameter.in_back) = true;
        parameter.last = op;
        if (parameter.first == no_id) parameter.first = op;
      }
    }
    std::vector<ShareDecision> decisions;
    for (const auto& [id, parameter] : parameters_) decisions.push_back(decide(id, parameter));
    return decisions;
  }

 private:
  void add_update(const Op& op, const std::vector<OpId>& made_by) {
    const Machine& machine = costs_.machine();
    for (TensorId written : op.writes) {
      if (graph_.kind_of(written) != TensorKind::parameter) continue;
      const TensorId whole = graph_.whole_of(written);
      Parameter& parameter = parameters_[whole];
      parameter.host_update += host_seconds(op, machine);
      parameter.early_update += costs_.problem().early_seconds(op);
      parameter.can_be_early &= undo_bytes(graph_, op) > 0;
      parameter.undo_bytes += undo_bytes(graph_, op);
      parameter.update += op_seconds(op, machine);
      for (TensorId id : op.writes)
        if (graph_.kind_of(id) == TensorKind::optimizer_state)
          parameter.state_bytes += graph_.tensor(id).bytes();
      for (TensorId read : op.reads) {
        if (graph_.kind_of(read) != TensorKind::gradient) continue;
        const TensorId id = graph_.whole_of(read);
        parameter.gate_bytes = graph_.tensor(id).bytes();
        parameter.gradient = id;
        parameter.gradient_op = made_by[id];
        if (made_by[id] != no_id && !rows_.in_front(made_by[id]))
          parameter.gradient_bytes = parameter.gate_bytes;
      }
    }
  }
  ShareDecision decide(TensorId id, const Parameter& parameter) const {
    ShareDecision decision = on_host(id, parameter, false);
    if (parameter.can_be_early)
      for (const ShareCost& option : on_host(id, parameter, true).options) decision.options.push_back(option);
    decision.options.push_back(resident(id, parameter));
    return decision;
  }
  ShareCost resident(TensorId id, const Parameter& parameter) const {
    ShareCost cost;
    cost.front[share_compute] = parameter.update;
    rows_.stay(id, parameter.bytes + parameter.state_bytes, cost, [](OpId) { return true; });
    // The state is there even while an op has the parameter as an operand.
    for (std::size_t m = 0; m < rows_.gate(); ++m)
      if (rows_.is_operand(id, rows_.all()[m])) cost.memory[m] += static_cast<double>(parameter.state_bytes);
    if (rows_.ordered() && parameter.gradient != no_id && parameter.gradient_op != no_id)
      rows_.stay(parameter.gradient, parameter.gate_bytes, cost,
                 [&](OpId op) { return op > parameter.gradient_op; });
    cost.memory[rows_.gate()] +=
        static_cast<double>(parameter.state_bytes + parameter.bytes + parameter.gate_bytes);
    return cost;
  }
  // Returns the options streamed and held. `early`: whether the update is early.
  ShareDecision on_host(TensorId id, const Parameter& parameter, bool early) const {
    const StepCuts& cuts = costs_.cuts();
    ShareCost held;
    costs_.add_host(parameter.bytes + parameter.state_bytes, held);
    // A gradient in the gradient ring has no bytes of its own.
    if (!early || costs_.problem().early_updates == EarlyUpdates::undoable)
      costs_.add_host(parameter.gate_bytes + (early ? parameter.undo_bytes : 0), held);
    if (parameter.in_front) costs_.add_in(parameter.bytes, held.front);
    if (!early && parameter.in_front) held.front[share_host] += parameter.host_update;
    costs_.add_out(parameter.gradient_bytes, held.back);
    cuts.add_offload(
        id, static_cast<double>(parameter.gradient_bytes) / costs_.machine().d2h.bytes_per_second, held);
    if (early)
      add_early_update(id, parameter, held);
    else
      cuts.add_update(id, parameter.host_update, held);
    ShareCost streamed = held;
    if (parameter.in_back) costs_.add_in(parameter.bytes, streamed.back);
    // A held parameter is there from its first use to its last.
    rows_.stay(id, parameter.bytes, held, [&](OpId op) {
      return rows_.ordered() ? parameter.first < op && op < parameter.last : op == rows_.turn();
    });
    return {{streamed, held}, 1};
  }

  // Adds an early update. An update whose gradient is made before the turn may have ended by then, so it
  // counts nowhere.
  void add_early_update(TensorId id, const Parameter& parameter, ShareCost& cost) const {
    if (parameter.gradient_bytes == 0) return;
    cost.back[share_host] += parameter.early_update;
    costs_.cuts().add_early_update(id, parameter.early_update, cost);
  }

  const BoundCosts& costs_;
  const BoundRows& rows_;
  const Graph& graph_;
  std::map<TensorId, Parameter> parameters_;
};

}  // namespace

std::vector<ShareDecision> parameter_decisions(const BoundCosts& costs) {
  return ParameterDecisions(costs).make();
}

}  // namespace stowage
