// The judge of simulate(): all instructions of some steps in one list, looked through again at every moment
// at which anything changes. Shares no code with it.
#pragma once

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage::test {

// Bytes that an instruction of the host lane reads and writes in a step that is not clipped. A speculated
// update also writes its undo record, and leaves its commit nothing to do.
inline double host_bytes(const Graph& graph, const Plan& plan, InstructionId id) {
  const Instruction& step = plan.instructions[id];
  const bool speculated =
      std::any_of(plan.instructions.begin(), plan.instructions.end(), [&](const Instruction& other) {
        return other.kind == InstructionKind::speculate && other.op == step.op;
      });
  if (step.kind == InstructionKind::commit && speculated) return 0;
  return graph.op(step.op).cost.bytes + static_cast<double>(step.part.bytes());
}

// The peers' bytes go both ways, so both directions have their rates beside each other.
inline std::vector<double> slow_rates_beside_peers(const Machine& m, const std::vector<bool>& moves) {
  const double way[] = {std::min(m.h2d.bytes_per_second, m.h2d_both_bytes_per_second),
                        std::min(m.d2h.bytes_per_second, m.d2h_both_bytes_per_second)};
  std::vector<double> most{0, moves[1] ? way[0] : 0, moves[2] ? way[1] : 0,
                           moves[3] ? m.host_bytes_per_second * (moves[0] ? m.host_beside_compute : 1) : 0,
                           m.peer.bytes_per_second};
  const double through = m.peer_path == PeerPath::host_memory ? 2 : 0;
  // The highest level that fits is found for all that is still open; then whoever is in what is full stays.
  std::vector<double> rate = most;
  std::vector<bool> open(5, true);
  const auto full = [&](double level, double slack, int which) {
    std::vector<double> r = rate;
    for (std::size_t i = 1; i < 5; ++i)
      if (open[i]) r[i] = std::min(most[i], level);
    if (which == 0) return r[1] + r[4] > way[0] * slack;
    if (which == 1) return r[2] + r[4] > way[1] * slack;
    return r[1] + r[2] + r[3] + through * r[4] > m.host_total_bytes_per_second * slack;
  };
  const std::vector<std::vector<std::size_t>> takers{{1, 4}, {2, 4}, {1, 2, 3, 4}};
  for (int round = 0; round < 4; ++round) {
    double low = 0, high = *std::max_element(most.begin(), most.end());
    for (int i = 0; i < 200; ++i) {
      const double middle = (low + high) / 2;
      (full(middle, 1, 0) || full(middle, 1, 1) || full(middle, 1, 2) ? high : low) = middle;
    }
    for (std::size_t i = 1; i < 5; ++i)
      if (open[i]) rate[i] = std::min(most[i], low);
    const std::vector<bool> before = open;
    for (std::size_t i = 1; i < 5; ++i) open[i] = before[i] && most[i] > low;
    for (int which = 0; which < 3; ++which)
      if (full(low * (1 + 1e-9), 1 - 1e-12, which))
        for (const std::size_t i : takers[static_cast<std::size_t>(which)])
          if (i < 4 || which < 2 || through > 0) open[i] = false;
  }
  rate[0] = (moves[1] ? m.compute_beside_copy : 1) * (moves[2] ? m.compute_beside_copy : 1) *
            (moves[3] ? m.compute_beside_host : 1);
  return rate;
}

// Rates of what moves on each lane now, by filling all evenly, a little at a time, until each has reached
// its own limit or one of what it takes, host memory or a way of the link, is full.
inline std::vector<double> slow_rates(const Machine& machine, const std::vector<bool>& moves) {
  const bool compute = moves[0], in = moves[1], out = moves[2], host = moves[3], peer = moves[4];
  if (peer && machine.peer_path != PeerPath::apart) return slow_rates_beside_peers(machine, moves);
  std::vector<double> limits(5, 0);
  limits[4] = machine.peer.bytes_per_second;
  limits[0] = (in ? machine.compute_beside_copy : 1) * (out ? machine.compute_beside_copy : 1) *
              (host ? machine.compute_beside_host : 1);
  if (in) limits[1] = machine.h2d.bytes_per_second;
  if (out) limits[2] = machine.d2h.bytes_per_second;
  if (in && out) limits[1] = std::min(limits[1], machine.h2d_both_bytes_per_second);
  if (in && out) limits[2] = std::min(limits[2], machine.d2h_both_bytes_per_second);
  if (host) limits[3] = machine.host_bytes_per_second * (compute ? machine.host_beside_compute : 1);
  double low = 0, high = limits[1] + limits[2] + limits[3];
  const auto filled = [&](double level) {
    return std::min(limits[1], level) + std::min(limits[2], level) + std::min(limits[3], level);
  };
  if (high <= machine.host_total_bytes_per_second) return limits;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (filled(middle) <= machine.host_total_bytes_per_second ? low : high) = middle;
  }
  for (int lane = 1; lane < 4; ++lane)
    limits[static_cast<std::size_t>(lane)] = std::min(limits[static_cast<std::size_t>(lane)], low);
  return limits;
}

// Eight steps, of which the last but one counts.
class SlowSimulation {
 public:
  SlowSimulation(const Graph& graph, const Plan& plan, const Machine& machine)
      : graph_(graph), plan_(plan), machine_(machine) {
    for (int step = 0; step < steps; ++step)
      for (InstructionId id = 0; id < plan.instructions.size(); ++id) runs_.push_back(run_of(id));
  }

  Timeline timeline() {
    while (!at(steps - 2, static_cast<InstructionId>(plan_.instructions.size()) - 1, true))
      throw_if_cancelled();
    const double from = of(steps - 3, plan_.gate).end;
    Timeline timeline;
    timeline.step_seconds = of(steps - 2, plan_.gate).end - from;
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id)
      timeline.instructions.push_back({of(steps - 2, id).begin - from, of(steps - 2, id).end - from});
    return timeline;
  }

 private:
  static constexpr int steps = 8;

  struct Run {
    double latency = 0;  // left
    double amount = 0;   // left: bytes of a copy or of a host step, seconds of an op
    double begin = -1;
    double end = -1;
    bool running() const { return begin >= 0 && end < 0; }
    bool moves() const { return running() && latency <= 0; }
  };

  Run run_of(InstructionId id) const {
    const Instruction& instruction = plan_.instructions[id];
    Run run;
    if (instruction.lifetime != no_id) {
      run.amount = static_cast<double>(plan_.buckets[plan_.lifetimes[instruction.lifetime].bucket].bytes);
      run.latency =
          instruction.lane == LaneRole::h2d ? machine_.h2d.latency_seconds : machine_.d2h.latency_seconds;
    } else {
      const OpCost& cost = graph_.op(instruction.op).cost;
      const double seconds =
          std::max(cost.flops / machine_.flops_per_second, cost.bytes / machine_.device_bytes_per_second) +
          machine_.launch_seconds;
      run.amount =
          instruction.lane == LaneRole::host ? host_bytes(graph_, plan_, id) : cost.seconds.value_or(seconds);
      if (instruction.lane == LaneRole::peer) {  // the bytes, behind all else that it takes
        const double moves = cost.peer_bytes / machine_.peer.bytes_per_second;
        const double comes = cost.peer_bytes > 0 ? machine_.peer.latency_seconds + moves : 0;
        run.latency = std::max(seconds - machine_.launch_seconds, comes) + machine_.launch_seconds - moves;
        run.amount = cost.peer_bytes;
      }
    }
    return run;
  }

  Run& of(int step, InstructionId id) {
    return runs_[static_cast<std::size_t>(step) * plan_.instructions.size() + id];
  }
  // Whether it has ended, and with `all` all before it in the step.
  bool at(int step, InstructionId id, bool all) {
    if (step < 0) return true;
    for (InstructionId i = all ? 0 : id; i <= id; ++i)
      if (of(step, i).end < 0) return false;
    return true;
  }

  bool may_start(int step, InstructionId id) {
    const Instruction& instruction = plan_.instructions[id];
    if (!at(step - 1, plan_.gate, false)) return false;
    if (id > plan_.gate && !at(step, plan_.gate, false)) return false;
    for (int s = 0; s <= step; ++s)
      for (InstructionId i = 0; i < (s < step ? plan_.instructions.size() : id); ++i)
        if (plan_.instructions[i].lane == instruction.lane && of(s, i).end < 0) return false;
    for (const Wait& wait : instruction.waits)
      if (!at(step - static_cast<int>(wait.steps_back), wait.instruction, false)) return false;
    return true;
  }

  LaneRole lane_of(std::size_t run) const { return plan_.instructions[run % plan_.instructions.size()].lane; }

  void throw_if_cancelled() {
    for (int step = 0; step < steps; ++step)
      for (InstructionId id = 0; id < plan_.instructions.size(); ++id)
        if (of(step, id).begin < 0 && may_start(step, id)) of(step, id).begin = time_;
    std::vector<bool> moves(5, false);
    for (std::size_t i = 0; i < runs_.size(); ++i)
      if (runs_[i].moves()) moves[static_cast<std::size_t>(lane_of(i))] = true;
    const std::vector<double> rate = slow_rates(machine_, moves);
    double ahead = std::numeric_limits<double>::infinity();
    const auto seconds_left = [&](std::size_t i) {
      const Run& run = runs_[i];
      return run.latency > 0 ? run.latency : run.amount / rate[static_cast<std::size_t>(lane_of(i))];
    };
    for (std::size_t i = 0; i < runs_.size(); ++i)
      if (runs_[i].running()) ahead = std::min(ahead, seconds_left(i));
    if (ahead == std::numeric_limits<double>::infinity()) throw std::logic_error("nothing runs");
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      Run& run = runs_[i];
      if (!run.running()) continue;
      const bool ends = seconds_left(i) <= ahead * (1 + 1e-12);
      if (run.latency > 0) {
        run.latency = ends ? 0 : run.latency - ahead;
      } else {
        run.amount -= ahead * rate[static_cast<std::size_t>(lane_of(i))];
        if (ends) run.end = time_ + ahead;
      }
    }
    time_ += ahead;
  }

  const Graph& graph_;
  const Plan& plan_;
  const Machine& machine_;
  std::vector<Run> runs_;
  double time_ = 0;
};

inline Timeline slow_simulation(const Graph& graph, const Plan& plan, const Machine& machine) {
  return SlowSimulation(graph, plan, machine).timeline();
}

}  // namespace stowage::test
