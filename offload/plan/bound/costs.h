// What ops and transfers cost in the lower bound's program (program.h).
#pragma once

#include <cstdint>

#include "offload/plan/bound/moments.h"
#include "offload/plan/decisions/step_cuts.h"

namespace stowage {

// How the two directions of the link count, which slow each other on some machines, as peers' bytes may slow
// both (machine.h). Either of the two bounds may be the higher one.
enum class BoundLinks : std::uint8_t {
  apart,   // each direction alone, as if all others stood still
  shared,  // each with a part of the others' time added; less of a link's time then counts as idle
};

class BoundCosts {
 public:
  // Keeps a reference. `budget.device`: bytes of the arena.
  BoundCosts(const Problem& problem, const Budget& budget, BoundLinks links);

  const BoundMoments& moments() const { return moments_; }
  const StepCuts& cuts() const { return cuts_; }
  const Problem& problem() const { return moments_.problem(); }
  const Graph& graph() const { return moments_.graph(); }
  const Machine& machine() const { return *problem().machine; }

  // Its time, and of an op of the compute lane how much of it each link cannot use.
  // In: a transfer that moves bytes while the op runs is of no operand (the op has waited for those, and its
  // outputs are not brought in), and its first use is a later op. So when the op ends, all such transfers'
  // bytes are taken at once, beside the operands: their sum is at most the budget less those, and so are the
  // parts of them that moved meanwhile. Out: what leaves while the op runs was used before it and is given
  // back after the transfer, so that all of it is taken when the op begins; it is nothing that the op writes,
  // in place or not. What it reads may leave, though no plan of ours does that.
  // So of the op's c seconds at most room/rate are the link's, and a phase whose ops are busy or not, but not
  // two at once, lasts no less than bytes/rate + sum of max(0, c - room/rate). A replay is one more op of
  // backward. Bytes that stay for the whole step, rounding to the alignment and latencies only take from the
  // room or add to the time; what host updates delay, too. Groups (may_alias) are counted once.
  void add_op(OpId op, ShareTimes& lanes) const;
  // A transfer of so many bytes to the device, and one to the host.
  void add_in(Bytes bytes, ShareTimes& lanes) const;
  void add_out(Bytes bytes, ShareTimes& lanes) const;
  // Bytes that have a place on the host. A plan keeps such a place for the whole step, so they are one row of
  // memory, behind those of the moments. Without effect where host memory has no limit; then there is no such
  // row.
  void add_host(Bytes bytes, ShareCost& cost) const;
  bool has_host_row() const { return budget_.host != unlimited; }
  std::size_t host_row() const { return moments_.all().size(); }

 private:
  BoundMoments moments_;
  Budget budget_;
  LaneSharing sharing_;
  StepCuts cuts_;
};

}  // namespace stowage
