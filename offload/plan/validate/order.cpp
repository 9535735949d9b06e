#include "offload/plan/validate/order.h"

#include <fmt/format.h>

#include <array>

namespace stowage::validation {

Order::Order(const Plan& plan, Report& report)
    : stride_(static_cast<std::uint32_t>(plan.instructions.size()) + 1),
      words_((std::size_t{stride_} * unrolled_steps + 63) / 64),
      predecessors_(std::size_t{stride_} * unrolled_steps) {
  add_edges(plan);
  if (!acyclic()) {
    report.add("deadlock: lane order and waits form a cycle");
    sound_ = false;
  }
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    for (const Wait& wait : plan.instructions[id].waits) {
      if (wait.steps_back > 0 || wait.instruction < id) continue;
      report.add(fmt::format("{} waits for {}, which is enqueued later", report.instruction(id),
                             report.instruction(wait.instruction)));
      sound_ = false;
    }
  }
  if (sound_) close();
}

void Order::add_edges(const Plan& plan) {
  std::array<std::uint32_t, lane_roles> last_of_lane{no_id, no_id, no_id, no_id};
  for (std::uint32_t step = 0; step < unrolled_steps; ++step) {
    if (step > 0 && plan.gate != no_id) predecessors_[beginning(step)].push_back(node(step - 1, plan.gate));
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
      std::vector<std::uint32_t>& before = predecessors_[node(step, id)];
      before.push_back(beginning(step));
      std::uint32_t& last = last_of_lane[static_cast<std::size_t>(plan.instructions[id].lane)];
      if (last != no_id) before.push_back(last);
      last = node(step, id);
      if (plan.gate != no_id && id > plan.gate) before.push_back(node(step, plan.gate));
      for (const Wait& wait : plan.instructions[id].waits) {
        if (wait.steps_back <= step) before.push_back(node(step - wait.steps_back, wait.instruction));
      }
    }
  }
}

bool Order::acyclic() const {
  std::vector<std::vector<std::uint32_t>> successors(nodes());
  std::vector<std::size_t> open(nodes());
  std::vector<std::uint32_t> ready;
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    open[node] = predecessors_[node].size();
    for (const std::uint32_t before : predecessors_[node]) successors[before].push_back(node);
    if (open[node] == 0) ready.push_back(node);
  }
  std::size_t done = 0;
  for (; done < ready.size(); ++done) {
    for (const std::uint32_t after : successors[ready[done]]) {
      if (--open[after] == 0) ready.push_back(after);
    }
  }
  return done == nodes();
}

// The list is a topological order once no wait points forwards.
void Order::close() {
  bits_.assign(std::size_t{nodes()} * words_, 0);
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    for (const std::uint32_t before : predecessors_[node]) {
      const std::uint64_t* from = row(before);
      std::uint64_t* to = row(node);
      for (std::size_t word = 0; word < words_; ++word) to[word] |= from[word];
      to[before / 64] |= std::uint64_t{1} << (before % 64);
    }
  }
}

}  // namespace stowage::validation
