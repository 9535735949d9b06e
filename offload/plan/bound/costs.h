// The costs of ops and transfers in the lower bound's program (program.h).
#pragma once

#include <cstdint>

#include "offload/plan/bound/rows.h"
#include "offload/plan/decisions/step_cuts.h"

namespace stowage {

// How the two directions of the link count. On some machines the two directions slow each other, and peers'
// bytes may slow both (machine.h). Either of the two bounds may be the higher one.
enum class BoundLinks : std::uint8_t {
  apart,   // counts each direction alone, as if all other lanes stood still
  shared,  // adds to each a part of the other lanes' time; less of a link's time then counts as idle
};

class BoundCosts {
 public:
  // Keeps a reference: the problem must outlive it. `budget.device`: bytes of the arena.
  BoundCosts(const Problem& problem, const Budget& budget, BoundLinks links);

  const BoundRows& rows() const { return rows_; }
  const StepCuts& cuts() const { return cuts_; }
  const Problem& problem() const { return rows_.problem(); }
  const Graph& graph() const { return rows_.graph(); }
  const Machine& machine() const { return *problem().machine; }

  // Adds the op's time and, for an op of the compute lane, the part of it during which each link must idle.
  //
  // Transfers in: a transfer that moves bytes while the op runs brings none of its operands (the op has
  // waited for its inputs, and its outputs are not brought in), and its first use is a later op. When the op
  // ends, all bytes of such transfers are therefore taken at once, beside the operands. Their sum is at most
  // the budget less the operands, and so is the sum of the bytes that moved while the op ran.
  //
  // Transfers out: a value that leaves while the op runs was used before, and its bytes are given back after
  // the transfer, so all of them are taken when the op begins. The op does not write it, in place or not. (A
  // value that the op reads may leave, though no plan of ours does that.)
  //
  // So a link can use at most room/rate of the op's c seconds. A phase in which at most one op runs at a time
  // lasts no less than bytes/rate + sum of max(0, c - room/rate). A replay is one more op of backward. Bytes
  // that stay for the whole step, rounding to the alignment, latencies and delays by host updates only take
  // from the room or add to the time. Alias groups (may_alias) are counted once.
  void add_op(OpId op, ShareTimes& lanes) const;
  // Adds the op's own time at the cuts that count it. If the order is far ahead there is one cut, for early
  // updates: none begins before the last micro-batch's backward, which makes the gradients' sums.
  void add_fixed_at_cuts(OpId op, bool in_front, ShareCost& fixed) const;
  // Adds a transfer of `bytes` to the device, or one to the host.
  void add_in(Bytes bytes, ShareTimes& lanes) const;
  void add_out(Bytes bytes, ShareTimes& lanes) const;
  // Adds bytes that have a place on the host. A plan keeps such a place for the whole step, so they count in
  // one memory row, behind the rows of device memory. Has no effect if host memory has no limit; then there
  // is no such row.
  void add_host(Bytes bytes, ShareCost& cost) const;
  bool has_host_row() const { return budget_.host != unlimited; }
  std::size_t host_row() const { return rows_.all().size(); }

 private:
  bool is_in_last_backward(OpId op) const;
  void cut_at_last_backward();

  BoundRows rows_;
  Budget budget_;
  LaneSharing sharing_;
  StepCuts cuts_;
};

}  // namespace stowage
