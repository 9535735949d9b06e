// One run: plans a shape's step, makes some steps, and tells everything as lines of JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bench/gpu_check/shapes.h"
#include "stowage/machine_file.h"
#include "stowage/planner.h"

namespace stowage::bench {

struct RunOptions {
  Shape shape;
  std::string device = "auto";  // as open_device takes it
  Link link{8e9, 10e-6, true};  // of the simulated device
  std::string machine_file;     // empty: a rough guess of the device
  Bytes device_memory = unlimited;
  Bytes host_memory = unlimited;  // for what the plan keeps there
  PlanOptions plan;
  std::uint64_t steps = 3;
  std::uint64_t seed = 1;
  bool plan_only = false;
  bool replay_copies = false;
  std::uint64_t profile_steps = 0;  // then made again with a timeline, whose last one is told; 0: none
  std::string timeline_file;        // the last of them as CSV (step_profile.h); empty: none
};

// Objects by their "kind": "setup" (or "infeasible", and nothing more), "step" for each, "kernels" and
// "lanes" (step_profile.h) where steps are made again for that, "attention" (launches by method and refusals,
// as AttentionUse has them), "copies" if they are to be replayed, "end" with the wall seconds of the engine's
// start (pinned memory and the arena) and of the steps; those of opening the device and of planning are in
// "setup". Doubles are written to the bit; losses also as the bits themselves. Returns 0, or 3 where no plan
// fits. Throws as the planner, the engine and the device do.
int run(const RunOptions& options, const std::function<void(const std::string& line)>& print);

}  // namespace stowage::bench
