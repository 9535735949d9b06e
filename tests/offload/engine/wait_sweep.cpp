#include "tests/offload/engine/wait_sweep.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "stowage/engine.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"

namespace stowage::testing {
namespace {

struct Node {
  std::uint32_t step = 0;
  InstructionId instruction = 0;
};

// Whether `later` directly follows `earlier`, in the same step or in the one after it.
class Order {
 public:
  Order(const Plan& plan, InstructionId loss_offload)
      : plan_(plan), host_waits_for_{plan.gate, loss_offload} {}

  bool direct(Node earlier, Node later) const {
    const Instruction& a = plan_.instructions[earlier.instruction];
    const Instruction& b = plan_.instructions[later.instruction];
    const std::uint32_t steps = later.step - earlier.step;
    const bool enqueued_before = steps > 0 || earlier.instruction < later.instruction;
    if (a.lane == b.lane && enqueued_before) return true;
    for (const Wait& wait : b.waits)
      if (wait.instruction == earlier.instruction && wait.steps_back == steps) return true;
    const bool behind_gate = steps > 0 || later.instruction > plan_.gate;
    return behind_gate &&
           (earlier.instruction == host_waits_for_[0] || earlier.instruction == host_waits_for_[1]);
  }

 private:
  const Plan& plan_;
  std::array<InstructionId, 2> host_waits_for_;
};

// Returns the plan without wait number `wait` of `instruction`.
Plan without_wait(Plan plan, InstructionId instruction, std::size_t wait) {
  auto& waits = plan.instructions[instruction].waits;
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait));
  return plan;
}

// Whether `wait` still holds in `plan`, which does not have it: by lane order, the other waits, the gate rule
// of plan.h, and the engine's own rule that the host has the loss before it goes past the gate. Walks the
// unrolled steps: slow and obvious.
bool implied(const Plan& plan, InstructionId instruction, const Wait& wait, InstructionId loss_offload) {
  const Order order(plan, loss_offload);
  const auto count = static_cast<std::uint32_t>(plan.instructions.size());
  const std::uint32_t target = wait.steps_back * count + instruction;
  std::vector<bool> reached(target + 1, false);
  reached[wait.instruction] = true;
  // Nodes in the order in which they are enqueued: every edge points forward.
  for (std::uint32_t from = wait.instruction; from < target; ++from) {
    if (!reached[from]) continue;
    for (std::uint32_t to = from + 1; to <= target; ++to)
      if (!reached[to] && order.direct({from / count, from % count}, {to / count, to % count}))
        reached[to] = true;
  }
  return reached[target];
}

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
