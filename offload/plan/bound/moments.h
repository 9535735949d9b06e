// When the lower bound counts device memory, and which side of the turn an op is on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "offload/plan/decisions/share_program.h"
#include "offload/plan/problem/problem.h"

namespace stowage {

// Device memory is a row of the bound's program at each of some *moments*: while one op runs, beside its
// operands; and at the gate, where each resident parameter has its gradient beside it. With one micro-batch
// the moments are the op with most operand bytes in each of most_bound_windows equal parts of the program,
// and that of the unit in which forward turns into backward. Of several micro-batches, whose order is the
// planner's choice, they are the latter and the largest op of all.
inline constexpr std::size_t most_bound_windows = 16;

class BoundMoments {
 public:
  // Keeps a reference.
  explicit BoundMoments(const Problem& problem);

  // While an op runs; no_id: at the gate.
  struct Moment {
    OpId op = no_id;
    std::vector<TensorId> operands;  // groups, sorted
  };

  const Problem& problem() const { return problem_; }
  const Graph& graph() const { return graph_; }
  // The largest op of the unit in which forward turns into backward.
  OpId turn() const { return turn_; }
  const std::vector<Moment>& all() const { return moments_; }  // in program order; the last is the gate
  // Whether program order is the plan's.
  bool ordered() const { return graph_.micro_batches == 1; }
  // Whether the op runs before the instant of the turn: the end of the turn's op if that is a forward op, its
  // begin otherwise. With several micro-batches there are many turns; then all forward ops count as before.
  bool in_front(OpId op) const;
  bool is_peer(OpId op) const { return problem_.layout.lanes[op] == LaneRole::peer; }
  std::size_t gate() const { return moments_.size() - 1; }
  bool is_operand(TensorId id, const Moment& moment) const {
    return std::binary_search(moment.operands.begin(), moment.operands.end(), group_of(id));
  }
  TensorId group_of(TensorId id) const { return problem_.analysis.group[id]; }
  std::vector<TensorId> groups(std::vector<TensorId> ids) const;  // each once, sorted
  std::vector<TensorId> operands(OpId op) const;
  double bytes_of(const std::vector<TensorId>& ids) const;
  double operand_bytes(OpId op) const { return op == no_id ? 0 : bytes_of(operands(op)); }
  // Adds the tensor's bytes to the cost's memory at moments that are about ops for which `when` holds, unless
  // it is an operand there.
  template <typename When>
  void stay(TensorId id, Bytes bytes, ShareCost& cost, When&& when) const {
    for (std::size_t m = 0; m + 1 < moments_.size(); ++m) {
      const Moment& moment = moments_[m];
      if (when(moment.op) && !is_operand(id, moment)) cost.memory[m] += static_cast<double>(bytes);
    }
  }

 private:
  void find_turn();
  void find_moments();
  void keep_larger(OpId& largest, OpId op) const {
    if (is_peer(op)) return;  // it has no fixed place among the compute lane's
    if (largest == no_id || operand_bytes(op) > operand_bytes(largest)) largest = op;
  }

  const Problem& problem_;
  const Graph& graph_;
  OpId turn_ = no_id;
  std::vector<Moment> moments_;
};

}  // namespace stowage
