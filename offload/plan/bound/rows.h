// The rows of device memory in the lower bound's program, and the side of the turn that an op is on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "offload/plan/decisions/share_program.h"
#include "offload/plan/problem/problem.h"
#include "offload/recompute/execution_order.h"

namespace stowage {

// Device memory is a row of the bound's program while each of some ops runs, beside its operands; and at the
// gate, where each resident parameter has its gradient beside it. With one micro-batch these ops are the op
// with most operand bytes in each of most_bound_windows equal parts of the program, and the largest op of the
// unit in which forward turns into backward. With several micro-batches, whose order is the planner's choice,
// they are the largest op of the turn's unit and the largest op of all. If the order is far ahead
// (execution_order.h), the turn's op is one of the first backward ops: the front is the forwards before them.
inline constexpr std::size_t most_bound_windows = 16;

class BoundRows {
 public:
  // Keeps a reference: the problem must outlive it.
  explicit BoundRows(const Problem& problem);

  // Device memory while `op` runs; no_id: at the gate.
  struct Row {
    OpId op = no_id;
    std::vector<TensorId> operands;  // alias groups of the op's operands, sorted
  };

  const Problem& problem() const { return problem_; }
  const Graph& graph() const { return graph_; }
  // Returns the largest op of the unit in which forward turns into backward.
  OpId turn() const { return turn_; }
  const std::vector<Row>& all() const { return rows_; }  // rows in program order; the last is the gate
  // Returns whether program order is the plan's order.
  bool ordered() const { return graph_.micro_batches == 1; }
  // Returns whether the problem's order is far ahead. Otherwise the bound holds for layer_major and ahead(1),
  // both.
  bool is_far() const { return is_far_ahead(graph_, problem_.analysis.order); }
  // Returns how many turns a step has, each with other micro-batches of the last range.
  std::uint32_t turns() const;
  // Returns whether all micro-batches of the unit are live at every turn, and not at one of them.
  bool is_at_every_turn(std::uint32_t unit) const { return is_far() && !graph_.is_in_last_range(unit); }
  // Returns whether the op runs before the instant of the turn: the end of the turn's op if that is a forward
  // op, else its begin. With several micro-batches there are many turns, and all forward ops count as before;
  // if the order is far ahead, those of the first forwards and the backward ops before the turn's.
  bool in_front(OpId op) const;
  bool is_peer(OpId op) const { return problem_.layout.lanes[op] == LaneRole::peer; }
  std::size_t gate() const { return rows_.size() - 1; }
  bool is_operand(TensorId id, const Row& row) const {
    return std::binary_search(row.operands.begin(), row.operands.end(), group_of(id));
  }
  TensorId group_of(TensorId id) const { return problem_.analysis.group[id]; }
  // Returns the alias groups of `ids`, each once, sorted.
  std::vector<TensorId> groups(std::vector<TensorId> ids) const;
  std::vector<TensorId> operands(OpId op) const;
  double bytes_of(const std::vector<TensorId>& ids) const;
  double operand_bytes(OpId op) const { return op == no_id ? 0 : bytes_of(operands(op)); }
  // Adds the tensor's bytes to the cost's memory in each row whose op satisfies `when`, unless the op has the
  // tensor as an operand. The gate's row is left out.
  template <typename When>
  void stay(TensorId id, Bytes bytes, ShareCost& cost, When&& when) const {
    for (std::size_t m = 0; m + 1 < rows_.size(); ++m) {
      const Row& row = rows_[m];
      if (when(row.op) && !is_operand(id, row)) cost.memory[m] += static_cast<double>(bytes);
    }
  }

 private:
  void find_turn();
  void find_rows();
  void keep_larger(OpId& largest, OpId op) const {
    if (is_peer(op)) return;  // a peer op has no fixed place among the compute lane's ops
    if (largest == no_id || operand_bytes(op) > operand_bytes(largest)) largest = op;
  }

  const Problem& problem_;
  const Graph& graph_;
  OpId turn_ = no_id;
  std::vector<Row> rows_;
};

}  // namespace stowage
