#include "offload/engine/check_plan.h"

#include <fmt/format.h>

#include "offload/plan/validate/passes.h"
#include "stowage/error.h"

namespace stowage {
namespace {

using validation::Places;
using validation::Report;

// The engine reads the loss and the gradient norm from host memory, and writes the inputs there.
void check_host_values(const Graph& graph, const Plan& plan, const Places& places, Report& report) {
  const auto on_host = [&](TensorId id) {
    return id < graph.tensors.size() && places.bucket[id] != no_id &&
           plan.buckets[places.bucket[id]].on_host();
  };
  if (!on_host(graph.loss)) report.add("the loss has no place on the host");
  if (!on_host(graph.clip)) report.add("the gradient norm has no place on the host");
  for (const Op& op : graph.ops)
    for (const TensorId id : op.reads)
      if (graph.tensor(id).kind == TensorKind::input && !on_host(id))
        report.add(fmt::format("input {} has no place on the host", report.tensor(id)));
}

}  // namespace

void check_executable(const Graph& graph, const Plan& plan) {
  Report report(graph, plan);
  check_ids(graph, plan, report);
  const Places places = check_buckets(graph, plan, report);
  if (report.empty()) {
    check_places_in_arena(plan, report);
    check_gates(graph, plan, report);
    check_enqueued(plan, report);
    check_host_values(graph, plan, places, report);
  }
  if (report.empty()) return;
  throw InvalidInput("the plan cannot be executed: " + report.take().front() +
                     "; make the plan from this graph again");
}

}  // namespace stowage
