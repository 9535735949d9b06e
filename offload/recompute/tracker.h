// RecomputeTracker: follows a plan through a step. It knows what became of each activation, and, of the ops
// that the plan replays, the bits that they wrote when they were first launched.
//
// Holds no device and no data: who runs the plan says where it is and gives the hashes. Allocates at
// construction alone.
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
  dropped,  // nowhere: overwritten in place, or its bytes serve others
};
std::string_view to_string(ActivationState state);

class RecomputeTracker {
 public:
  // Both must outlive it, and belong together (check_executable).
  RecomputeTracker(const Graph& graph, const Plan& plan);

  void begin_step() { next_ = 0; }
  // The instruction has been run. In the plan's order; none is left out.
  void follow(InstructionId id) { next_ = id + 1; }
  // As the instructions that were followed left it. Copies that a replay makes and nobody reads do not count.
  // Walks the plan: for messages.
  ActivationState state(TensorId activation) const;

  // Which of the op's writes are compared: all but workspaces where the plan replays the op, a copy that
  // nobody reads too, for the op is either replayable or not; none otherwise. Their bits must be looked at
  // right behind the instruction, before an op in place or the next owner of the bytes changes them.
  std::span<const std::uint32_t> compared_writes(InstructionId id) const;
  struct Comparison {
    bool equal = true;  // also for a first launch, which has nothing to compare with
    std::uint64_t expected = 0;
  };
  Comparison compare(InstructionId id, std::uint32_t write, std::uint64_t hash);

 private:
  struct ReplayedOp {
    std::vector<std::uint32_t> writes;    // indices into the op's
    std::vector<std::uint64_t> expected;  // by write of the op
  };
  class Walk;

  const Graph& graph_;
  const Plan& plan_;
  std::vector<ReplayedOp> ops_;  // by op; empty where the plan does not replay it
  InstructionId next_ = 0;
};

}  // namespace stowage
