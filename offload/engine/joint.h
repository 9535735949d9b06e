// Joint launches: consecutive updates of the compute lane that are enqueued as one launch, because a card
// takes some microseconds for each. The plan does not know of them.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "stowage/device.h"
#include "stowage/graph.h"
#include "stowage/launch_table.h"
#include "stowage/plan.h"

namespace stowage {

struct Work;

// Returns the groups of at least two commits of the compute lane that may be enqueued in place of the first
// of them: they follow one another on the lane on the same side of the gate, none waits for anything that the
// first does not wait for, none is the first to use a lifetime, and within the step no other lane
// waits for one of them but the last. A run of such commits has at most most_joint_updates. It gives a group
// for each combination of operand types, of those whose kernel has a joint kernel. What waits for a member in
// the next step waits for all of them.
std::vector<std::vector<InstructionId>> joint_updates(const Graph& graph, const Plan& plan,
                                                      const LaunchTable& kernels);

// The context of a joint launch on a lane.
struct JointWork {
  JointKernel kernel = nullptr;
  std::vector<Work*> works;
  std::vector<LaunchArguments> arguments;  // room for those of `works`, so that a step allocates nothing

  static void run(void* work);
};

struct JointLaunch {
  std::array<JointWork, 2> work;  // by parity
  std::vector<Access> accesses;   // of all members
  double seconds = 0;             // modelled seconds of all members
};

}  // namespace stowage
