// RecomputeTracker follows a plan through a step. The tracker knows the state of each activation, and the
// hashes of the values that replayed ops wrote when they were first launched.
//
// It holds no device and no data: the caller says which instruction has been run and computes the hashes. It
// allocates only in its constructor.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage {

enum class ActivationState : std::uint8_t {
  none,     // not made yet in this step
  made,     // on the device, as its op left it
  rebuilt,  // on the device, as a replay left it
  fetched,  // on the device, brought back from the host
  on_host,
  dropped,  // lost: overwritten in place, or its bytes serve other values
};
std::string_view to_string(ActivationState state);

class RecomputeTracker {
 public:
  // Both arguments must outlive the tracker. Requires a plan that check_executable accepts for the graph.
  RecomputeTracker(const Graph& graph, const Plan& plan);

  void begin_step() { next_ = 0; }
  // Says that the instruction has been run. Call it for every instruction, in the plan's order.
  void follow(InstructionId id) { next_ = id + 1; }
  // Returns the state in which the followed instructions left the activation. Copies that a replay makes and
  // no other instruction reads do not count. Walks the whole plan, so use it for messages only.
  ActivationState state(TensorId activation) const;

  // Returns which of the op's writes are compared: if the plan replays the op, all but workspaces (even a
  // copy that nobody reads, because a replayable op must reproduce all its results); else none. Their bits
  // must be read right behind the instruction, before an op in place or the next owner of the bytes changes
  // them.
  std::span<const std::uint32_t> compared_writes(InstructionId id) const;
  struct Comparison {
    bool equal = true;  // results agree; true for a first launch, which has nothing to compare with
    std::uint64_t expected = 0;
  };
  Comparison compare(InstructionId id, std::uint32_t write, std::uint64_t hash);

 private:
  struct ReplayedOp {
    std::vector<std::uint32_t> writes;    // indices into the op's writes
    std::vector<std::uint64_t> expected;  // expected hashes, one for each write of the op
  };
  class Walk;

  const Graph& graph_;
  const Plan& plan_;
  std::vector<ReplayedOp> ops_;  // replayed ops; empty for an op that the plan does not replay
  InstructionId next_ = 0;
};

}  // namespace stowage
