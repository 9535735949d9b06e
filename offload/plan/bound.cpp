#include "offload/plan/bound.h"

#include "offload/plan/bound_program.h"
#include "offload/plan/lane_speeds.h"

namespace stowage {
StepBound lower_bound(const Problem& problem, Bytes device_budget) {
  auto of = [&](BoundLinks links) -> StepBound {
    problem.go_on();
    const BoundProgram program = make_bound_program(problem, device_budget, links);
    const ShareAnswer answer = solve(program.shares);
    return {answer.bound * program.seconds, std::string(to_string(answer.binding))};
  };
  StepBound apart = of(BoundLinks::apart);
  if (!LaneSpeeds(*problem.machine).shared()) return apart;
  StepBound shared = of(BoundLinks::shared);
  return shared.seconds > apart.seconds ? shared : apart;
}

}  // namespace stowage
