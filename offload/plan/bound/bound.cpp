#include "offload/plan/bound/bound.h"

#include <algorithm>

#include "offload/plan/bound/program.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

bool is_lower(const StepBound& a, const StepBound& b) { return a.seconds < b.seconds; }

// Each op of the peer lane runs at least once, one after another.
StepBound of_peers(const Problem& problem) {
  StepBound bound{0, std::string(to_string(LaneRole::peer))};
  for (OpId op = 0; op < problem.graph->ops.size(); ++op)
    if (problem.layout.lanes[op] == LaneRole::peer)
      bound.seconds += op_seconds(problem.graph->op(op), *problem.machine);
  return bound;
}

}  // namespace

StepBound lower_bound(const Problem& problem, const Budget& budget) {
  auto of = [&](BoundLinks links) -> StepBound {
    problem.throw_if_cancelled();
    const BoundProgram program = make_bound_program(problem, budget, links);
    const ShareAnswer answer = solve(program.shares);
    return {answer.bound * program.seconds, std::string(to_string(answer.binding))};
  };
  StepBound bound = std::max(of(BoundLinks::apart), of_peers(problem), is_lower);
  return problem.speeds.shared() ? std::max(bound, of(BoundLinks::shared), is_lower) : bound;
}

}  // namespace stowage
