#include "tests/offload/engine/wait_sweep.h"

#include <gtest/gtest.h>

#include "stowage/engine.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/plan_order.h"
#include "tests/offload/engine/training_run.h"

namespace stowage::testing {
namespace {

// Whether three steps of the plan end in an error that speaks of missing order.
bool is_caught(const Graph& graph, const Plan& plan, const LaunchTable& kernels, std::int32_t input_range) {
  const auto device = open_simulated_device(
      {.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time, .poison = Poison::none});
  EngineOptions options;
  options.validate = false;
  options.kernels = kernels;
  Engine engine(*device, graph, plan, options);
  StepInputs inputs(graph, input_range);
  try {
    for (int step = 0; step < 3; ++step) make_step(engine, inputs);
    return false;
  } catch (const StepError& error) {
    EXPECT_NE(std::string(error.what()).find("nothing orders it after"), std::string::npos) << error.what();
    return true;
  }
}

InstructionId loss_offload(const Graph& graph, const Plan& plan) {
  InstructionId last = no_id;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    if (plan.instructions[id].kind != InstructionKind::offload) continue;
    const BucketId bucket = plan.lifetimes[plan.instructions[id].lifetime].bucket;
    for (const BucketTensor& member : plan.buckets[bucket].tensors)
      if (member.tensor == graph.loss) last = id;
  }
  return last;
}

}  // namespace

WaitSweep sweep_waits(const Graph& graph, const Plan& plan, const LaunchTable& kernels,
                      std::int32_t input_range) {
  EXPECT_FALSE(is_caught(graph, plan, kernels, input_range));
  WaitSweep sweep;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    for (std::size_t number = 0; number < plan.instructions[id].waits.size(); ++number) {
      const Wait wait = plan.instructions[id].waits[number];
      const Plan mutated = without_wait(plan, id, number);
      if (is_caught(graph, mutated, kernels, input_range)) {
        ++sweep.caught;
        continue;
      }
      ++sweep.implied;
      EXPECT_TRUE(implied(mutated, id, wait, loss_offload(graph, plan)))
          << "instruction " << id << " without its wait for " << wait.instruction << ", " << wait.steps_back
          << " steps back: neither caught nor implied";
    }
  }
  return sweep;
}

}  // namespace stowage::testing
