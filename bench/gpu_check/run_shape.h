// One run: plans a shape's step, makes some steps, and prints all results as lines of JSON.
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
  std::string device = "auto";  // a device that choose_device takes
  Link link{8e9, 10e-6, true};  // of the simulated device
  std::string machine_file;     // empty: a rough guess of the device
  Bytes device_memory = unlimited;
  Bytes host_memory = unlimited;  // budget of the plan
  PlanOptions plan;
  std::uint64_t steps = 3;
  std::uint64_t seed = 1;
  std::int64_t host_elements = 0;  // of an AdamW that times the host around the steps; 0: does not
  bool plan_only = false;
  bool replay_copies = false;
  std::uint64_t profile_steps = 0;  // steps repeated with a timeline; the last one's is printed; 0: none
  std::string timeline_file;        // the last profiled step's timeline as CSV (step_profile.h); empty: none
};

// Prints JSON objects in this order, each with its "kind": "setup", or "infeasible" and nothing more; "step"
// for each step; "attention" (launches by method and refusals, as in AttentionUse); "kernels" and "lanes"
// (step_profile.h) if steps are profiled; "copies" if copies are replayed; "end". With `plan_only` "setup" is
// the only object. "setup" has the wall seconds of opening the device and of planning; "end" has the wall
// seconds of the engine's start (pinned memory and the arena) and of the steps, and with `host_elements` the
// bytes per second that AdamW moved in host memory before the engine's start and after its end. Doubles are
// written to the last bit, and losses also as bits. Returns 0, or 3 if no plan fits. Throws as the planner,
// the engine and the device do.
int run(const RunOptions& options, const std::function<void(const std::string& line)>& print);

}  // namespace stowage::bench
