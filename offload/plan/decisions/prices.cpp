#include "offload/plan/decisions/prices.h"

#include "src/graph/cost.h"

namespace stowage {

PlanPrice price_of(const Plan& plan, const Graph& graph, const Machine& machine,
                   const PlannerSettings& settings) {
  PlanPrice price;
  for (const Instruction& instruction : plan.instructions) {
    if (is_transfer(instruction.kind)) price.transfers += transfer_price(machine, settings);
    if (instruction.kind == InstructionKind::recompute)
      price.replays += settings.replay_price * op_seconds(graph.op(instruction.op), machine);
  }
  return price;
}

}  // namespace stowage
