#include "offload/plan/bound.h"

#include <algorithm>
#include <array>

#include "offload/plan/bound_program.h"
#include "offload/plan/lane_speeds.h"

namespace stowage {
namespace {

constexpr std::array<const char*, share_lanes> names{"compute", "h2d", "d2h", "host"};

// Whether the first op reads a parameter that is cut, and program order is the plan's.
bool may_wait(const Problem& problem) {
  const Graph& graph = *problem.graph;
  if (graph.micro_batches > 1 || graph.ops.empty()) return false;
  const std::vector<TensorId>& reads = graph.ops.front().reads;
  return std::any_of(reads.begin(), reads.end(), [&](TensorId id) {
    return graph.tensor(id).kind == TensorKind::parameter &&
           !problem.layout.slices[problem.layout.bucket_of[id]].empty();
  });
}

}  // namespace

StepBound lower_bound(const Problem& problem, Bytes device_budget) {
  StepBound best;
  const auto look = [&](BoundLinks links, BoundStart start) {
    const BoundProgram program = make_bound_program(problem, device_budget, links, start);
    const ShareAnswer answer = solve(program.shares);
    if (!best.bound_by.empty() && answer.bound * program.seconds <= best.seconds) return;
    best = {answer.bound * program.seconds, names[start == BoundStart::waits ? share_host : answer.binding]};
  };
  const bool waits = may_wait(problem), shared = LaneSpeeds(*problem.machine).shared();
  look(BoundLinks::apart, BoundStart::updates);
  if (shared) look(BoundLinks::shared, BoundStart::updates);
  if (waits) look(BoundLinks::apart, BoundStart::waits);
  if (waits && shared) look(BoundLinks::shared, BoundStart::waits);
  return best;
}

}  // namespace stowage
