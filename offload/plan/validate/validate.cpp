#include "offload/plan/validate/passes.h"
#include "stowage/planner.h"

namespace stowage {

std::vector<std::string> validate(const Graph& graph, const Plan& plan, const Budget& budget) {
  using namespace validation;
  Report report(graph, plan);
  check_ids(graph, plan, report);
  const Places places = check_buckets(graph, plan, report);
  if (!report.empty()) return report.take();  // later checks would index out of range
  check_program(graph, plan, report);
  check_lifetimes(graph, plan, places, report);
  check_totals(plan, budget, report);
  const Order order(plan, report);
  if (!order.sound()) return report.take();
  check_arena(graph, plan, places, order, report);
  check_host_memory(graph, plan, places, order, report);
  check_values(graph, plan, places, order, report);
  return report.take();
}

}  // namespace stowage
