#include "offload/plan/bound/bound.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "offload/plan/bound/program.h"
#include "src/graph/cost.h"
#include "stowage/plan.h"

namespace stowage {
namespace {

class ProgramBuilder {
 public:
  ProgramBuilder(const Problem& problem, const Budget& budget, BoundLinks links)
      : costs_(problem, budget, links), rows_(costs_.rows()), problem_(problem), graph_(*problem.graph) {
    program_.bytes = std::max(1.0, static_cast<double>(std::min(budget.device, total_bytes())));
    host_unit_ = std::max(1.0, static_cast<double>(std::min(budget.host, total_bytes())));
    for (const BoundRows::Row& row : rows_.all())
      program_.shares.room.push_back(budget.device == unlimited
                                         ? static_cast<double>(total_bytes())
                                         : static_cast<double>(budget.device) - rows_.bytes_of(row.operands));
    if (costs_.has_host_row()) program_.shares.room.push_back(static_cast<double>(budget.host));
  }

  BoundProgram build() {
    add_ops();
    add_always_on_host();
    std::vector<ShareDecision> decisions = parameter_decisions(costs_);
    std::vector<ShareDecision> of_activations = activation_decisions(costs_);
    std::move(of_activations.begin(), of_activations.end(), std::back_inserter(decisions));
    program_.shares.decisions = with_alike_as_one(std::move(decisions));
    normalise();
    return std::move(program_);
  }

 private:
  Bytes total_bytes() const {
    Bytes sum = 0;
    for (const Bucket& bucket : problem_.layout.buckets) sum += bucket.bytes;
    return sum;
  }
  void add_ops() {
    ShareCost& fixed = program_.shares.fixed;
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update || rows_.is_peer(op)) continue;
      const bool in_front = rows_.in_front(op);
      costs_.add_op(op, in_front ? fixed.front : fixed.back);
      costs_.add_fixed_at_cuts(op, in_front, fixed);
    }
    if (problem_.layout.has_peers) add_peer_ops(fixed);
  }
  // Adds the ops of the peer lane, which runs them as soon as it can. An op counts in the back if it
  // needs a result from there, else in the front if an op of the compute lane there needs its result,
  // else in neither.
  void add_peer_ops(ShareCost& fixed) const {
    // 1: read in the front; made in the back.
    std::vector<std::uint8_t> front(graph_.tensors.size(), 0), back(graph_.tensors.size(), 0);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) continue;
      const std::vector<TensorId>& reads = graph_.op(op).reads;
      if (!rows_.is_peer(op) && rows_.in_front(op))
        for (TensorId id : reads) front[id] = 1;
      const bool is_late = rows_.is_peer(op) ? any_of(reads, back) : !rows_.in_front(op);
      for (TensorId id : graph_.op(op).writes) back[id] = is_late;
    }
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (!rows_.is_peer(op)) continue;
      if (any_of(graph_.op(op).writes, back))
        costs_.add_op(op, fixed.back);
      else if (any_of(graph_.op(op).writes, front))
        costs_.add_op(op, fixed.front);
    }
  }
  static bool any_of(const std::vector<TensorId>& ids, const std::vector<std::uint8_t>& marked) {
    return std::any_of(ids.begin(), ids.end(), [&](TensorId id) { return marked[id] != 0; });
  }

  // Adds the buckets that have a place on the host in every plan: inputs, which come anew for each step; the
  // loss and the parts of the norm, which leave in each step; and the clip scale, which the host makes.
  void add_always_on_host() {
    std::vector<std::uint8_t> is_read(problem_.layout.buckets.size(), 0);
    for (const Op& op : graph_.ops)
      for (TensorId id : op.reads) is_read[problem_.layout.bucket_of[id]] = 1;
    for (BucketId id = 0; id < problem_.layout.buckets.size(); ++id) {
      const BucketRole role = problem_.layout.roles[id];
      if ((role == BucketRole::input && is_read[id]) || role == BucketRole::loss ||
          role == BucketRole::square_sums || role == BucketRole::clip)
        costs_.add_host(problem_.layout.buckets[id].bytes, program_.shares.fixed);
    }
  }

  void normalise() {
    program_.seconds = std::max(
        1e-12, program_.shares.fixed.front[share_compute] + program_.shares.fixed.back[share_compute]);
    auto scale = [&](ShareCost& cost) {
      for (double& seconds : cost.front) seconds /= program_.seconds;
      for (double& seconds : cost.back) seconds /= program_.seconds;
      for (std::size_t row = 0; row < cost.memory.size(); ++row) cost.memory.at(row) /= unit_of(row);
    };
    scale(program_.shares.fixed);
    for (ShareDecision& decision : program_.shares.decisions)
      for (ShareCost& option : decision.options) scale(option);
    for (std::size_t row = 0; row < program_.shares.room.size(); ++row)
      program_.shares.room[row] = std::max(1e-3, program_.shares.room[row] / unit_of(row));
  }
  double unit_of(std::size_t row) const { return row < costs_.host_row() ? program_.bytes : host_unit_; }

  BoundCosts costs_;
  const BoundRows& rows_;
  const Problem& problem_;
  const Graph& graph_;
  BoundProgram program_;
  double host_unit_ = 1;
};

bool is_lower(const StepBound& a, const StepBound& b) { return a.seconds < b.seconds; }

// Returns the bound of the peer lane, which runs each of its ops at least once, one after another.
StepBound of_peers(const Problem& problem) {
  StepBound bound{0, std::string(to_string(LaneRole::peer))};
  for (OpId op = 0; op < problem.graph->ops.size(); ++op)
    if (problem.layout.lanes[op] == LaneRole::peer)
      bound.seconds += op_seconds(problem.graph->op(op), *problem.machine);
  return bound;
}

// Returns the bound of the lanes of one device.
StepBound of_lanes(const Problem& problem, const Budget& budget) {
  const auto of = [&](BoundLinks links) -> StepBound {
    problem.throw_if_cancelled();
    const BoundProgram program = make_bound_program(problem, budget, links);
    const ShareAnswer answer = solve(program.shares);
    return {answer.bound * program.seconds, std::string(to_string(answer.binding))};
  };
  const StepBound bound = of(BoundLinks::apart);
  return problem.speeds.shared() ? std::max(bound, of(BoundLinks::shared), is_lower) : bound;
}

// Host memory binds, rather than the host lane, if bytes of other lanes are more than this part of the bound,
// which is well above the solver's tolerance.
constexpr double least_part_of_copies = 1e-3;

}  // namespace

BoundProgram make_bound_program(const Problem& problem, const Budget& budget, BoundLinks links) {
  return ProgramBuilder(problem, budget, links).build();
}

StepBound lower_bound(const Problem& problem, const Budget& budget) {
  StepBound bound = std::max(of_lanes(problem, budget), of_peers(problem), is_lower);
  if (bound.bound_by != to_string(LaneRole::host) || problem.sharing.host_seconds_per_byte == 0) return bound;
  Problem alone = problem;
  alone.sharing.host_seconds_per_byte = alone.sharing.peer_to_host = 0;
  if (of_lanes(alone, budget).seconds < bound.seconds * (1 - least_part_of_copies))
    bound.bound_by = Plan::host_memory_binds;
  return bound;
}

}  // namespace stowage
