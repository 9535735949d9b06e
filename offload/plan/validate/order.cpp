#include "offload/plan/validate/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace stowage::validation {

bool check_enqueued(const Plan& plan, Report& report) {
  bool sound = true;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    for (const Wait& wait : plan.instructions[id].waits) {
      if (wait.steps_back > 0 || wait.instruction < id) continue;
      report.add(fmt::format("{} waits for {}, which is enqueued later", report.instruction(id),
                             report.instruction(wait.instruction)));
      sound = false;
    }
  }
  return sound;
}

Order::Order(const Plan& plan, Report& report)
    : stride_(static_cast<std::uint32_t>(plan.instructions.size()) + 1),
      predecessors_(std::size_t{stride_} * unrolled_steps),
      chain_(predecessors_.size()) {
  add_edges(plan);
  if (!acyclic()) {
    report.add("deadlock: lane order and waits form a cycle");
    sound_ = false;
  }
  sound_ = check_enqueued(plan, report) && sound_;
  if (sound_) count();
}

void Order::add_edges(const Plan& plan) {
  std::array<std::uint32_t, lane_roles> last_of_lane, in_lane{};
  last_of_lane.fill(no_id);
  for (std::uint32_t step = 0; step < unrolled_steps; ++step) {
    chain_[beginning(step)] = {static_cast<std::uint32_t>(lane_roles) + step, 1};
    if (step > 0 && plan.gate != no_id) predecessors_[beginning(step)].push_back(node(step - 1, plan.gate));
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
      std::vector<std::uint32_t>& before = predecessors_[node(step, id)];
      before.push_back(beginning(step));
      const auto lane = static_cast<std::uint32_t>(plan.instructions[id].lane);
      chain_[node(step, id)] = {lane, ++in_lane.at(lane)};
      std::uint32_t& last = last_of_lane.at(lane);
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
void Order::count() {
  ended_before_.assign(nodes(), {});
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    Counts& counts = ended_before_[node];
    for (const std::uint32_t before : predecessors_[node]) {
      for (std::size_t chain = 0; chain < chains; ++chain)
        counts.at(chain) = std::max(counts.at(chain), ended_before_[before].at(chain));
      std::uint32_t& own = counts.at(chain_[before].of);
      own = std::max(own, chain_[before].number);
    }
  }
}

}  // namespace stowage::validation
