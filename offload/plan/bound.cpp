#include "offload/plan/bound.h"

#include <algorithm>
#include <utility>

#include "src/graph/cost.h"

namespace stowage {
namespace {

struct Totals {
  double forward = 0, backward = 0, update_on_device = 0, update_on_host = 0;  // seconds
  double parameter_bytes = 0, state_bytes = 0;  // parameters; parameters and optimizer state
};

Totals totals_of(const Graph& graph, const Machine& machine) {
  Totals totals;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::forward) totals.forward += op_seconds(op, machine);
    if (op.phase == Phase::backward) totals.backward += op_seconds(op, machine);
    if (op.phase == Phase::update) {
      totals.update_on_device += op_seconds(op, machine);
      totals.update_on_host += host_seconds(op, machine);
    }
  }
  for (const Tensor& tensor : graph.tensors) {
    double bytes = static_cast<double>(tensor.bytes());
    if (tensor.kind == TensorKind::parameter) totals.parameter_bytes += bytes;
    if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state)
      totals.state_bytes += bytes;
  }
  return totals;
}

}  // namespace

StepBound lower_bound(const Graph& graph, const Machine& machine, Bytes device_budget) {
  Totals totals = totals_of(graph, machine);
  double budget = device_budget == unlimited ? totals.state_bytes : static_cast<double>(device_budget);
  double away = totals.state_bytes > 0 ? std::max(0.0, totals.state_bytes - budget) / totals.state_bytes : 0;
  double moved = away * totals.parameter_bytes;
  double h2d = moved / machine.h2d.bytes_per_second;
  double d2h = moved / machine.d2h.bytes_per_second;
  double host = away * totals.update_on_host;
  double compute = totals.forward + totals.backward;
  std::pair<double, const char*> back =
      std::max(std::pair(totals.backward, "compute"), std::pair(d2h, "d2h"));
  std::pair<double, const char*> front =
      std::max({std::pair(totals.forward, "compute"), std::pair(host, "host"), std::pair(h2d, "h2d")});
  StepBound bound{std::max(compute, back.first + front.first), "compute"};
  if (back.first + front.first > compute)
    bound.bound_by = front.first > totals.forward ? front.second : back.second;
  return bound;
}

}  // namespace stowage
