#include "tests/offload/engine/plan_order.h"

#include <array>
#include <vector>

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

}  // namespace

Plan without_wait(Plan plan, InstructionId instruction, std::size_t wait) {
  auto& waits = plan.instructions[instruction].waits;
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait));
  return plan;
}

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

}  // namespace stowage::testing
