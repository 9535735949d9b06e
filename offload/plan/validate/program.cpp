#include "offload/plan/validate/passes.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/graph/update_ops.h"

namespace stowage::validation {
namespace {

bool is_update(const Graph& graph, OpId op) { return graph.op(op).phase == Phase::update; }

// Returns how often each op runs, apart from replays and speculations.
std::vector<int> count_runs(const Graph& graph, const Plan& plan) {
  std::vector<int> runs(graph.ops.size(), 0);
  for (const Instruction& instruction : plan.instructions) {
    if (!is_transfer(instruction.kind) && instruction.kind != InstructionKind::recompute &&
        instruction.kind != InstructionKind::speculate)
      ++runs[instruction.op];
  }
  return runs;
}

void check_update_count(const Graph& graph, OpId op, int runs, Report& report) {
  if (runs == 1) return;
  if (is_clip(graph, op)) {
    report.add(fmt::format("{} runs {} times in a step instead of once", report.op(op), runs));
    return;
  }
  std::string parameters;
  for (const TensorId id : graph.op(op).writes) {
    if (graph.kind_of(id) == TensorKind::parameter) parameters += " " + report.tensor(id);
  }
  if (runs == 0) report.add(fmt::format("{} never runs: stale parameter{}", report.op(op), parameters));
  if (runs > 1) {
    report.add(
        fmt::format("{} runs {} times: the gradient is applied twice to{}", report.op(op), runs, parameters));
  }
}

void check_counts(const Graph& graph, const Plan& plan, Report& report) {
  const std::vector<int> runs = count_runs(graph, plan);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    if (is_update(graph, op)) {
      check_update_count(graph, op, runs[op], report);
    } else if (runs[op] != 1) {
      report.add(fmt::format("{} is launched {} times in a step instead of once", report.op(op), runs[op]));
    }
  }
}

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Returns whether `later` must come after `earlier`, which stands before it in the graph: `later` reads a
// result of `earlier`, or overwrites a tensor that `earlier` reads or writes.
bool depends(const Graph& graph, OpId later, OpId earlier) {
  const Op& op = graph.op(later);
  const Op& other = graph.op(earlier);
  for (const TensorId id : op.reads) {
    if (contains(other.writes, graph.whole_of(id))) return true;
  }
  for (const Alias& alias : op.may_alias) {
    if (contains(other.reads, op.reads[alias.read])) return true;
  }
  return false;
}

// Checks that forward and backward ops are launched in an order that keeps the meaning of the graph's order.
void check_order(const Graph& graph, const Plan& plan, Report& report) {
  std::vector<InstructionId> launches;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (instruction.kind == InstructionKind::launch && !is_update(graph, instruction.op))
      launches.push_back(id);
  }
  for (std::size_t i = 0; i < launches.size(); ++i) {
    for (std::size_t k = i + 1; k < launches.size(); ++k) {
      const OpId first = plan.instructions[launches[i]].op;
      const OpId second = plan.instructions[launches[k]].op;
      if (first <= second || !depends(graph, first, second)) continue;
      report.add(fmt::format("{} is out of order: it comes after {}", report.instruction(launches[k]),
                             report.instruction(launches[i])));
    }
  }
}

void check_phases(const Graph& graph, const Plan& plan, Report& report) {
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (is_transfer(instruction.kind)) continue;
    const bool updates = is_update(graph, instruction.op);
    if (instruction.kind == InstructionKind::recompute && graph.op(instruction.op).phase != Phase::forward) {
      report.add(fmt::format("{} replays what is no forward op", report.instruction(id)));
    }
    if (instruction.kind == InstructionKind::launch && updates) {
      report.add(fmt::format("{} changes weights and is no commit", report.instruction(id)));
    }
    if (instruction.kind == InstructionKind::commit && (!updates || is_clip(graph, instruction.op))) {
      report.add(fmt::format("{} commits what is no update op", report.instruction(id)));
    }
  }
}

void check_kinds(const Graph& graph, const Plan& plan, Report& report) {
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    const InstructionKind kind = instruction.kind;
    if (kind == InstructionKind::recompute && !graph.op(instruction.op).replayable)
      report.add(fmt::format("{} replays an op that is not replayable", report.instruction(id)));
    const bool in_backward = plan.optimizer_in_backward && runs_on_host(instruction);
    if (kind == InstructionKind::commit && (plan.gate == no_id || (id < plan.gate && !in_backward)))
      report.add(fmt::format("{} changes weights before the gate", report.instruction(id)));
    if (kind == InstructionKind::gate && id != plan.gate)
      report.add(fmt::format("{} is not the plan's gate", report.instruction(id)));
    const bool may_follow = kind == InstructionKind::commit || kind == InstructionKind::prefetch ||
                            kind == InstructionKind::speculate;  // refused by check_speculations
    if (plan.gate != no_id && id > plan.gate && !may_follow)
      report.add(fmt::format("{} is behind the gate", report.instruction(id)));
  }
}

// Checks that an update is speculated at most once, before the gate, and that a host step behind it ends it.
void check_speculations(const Graph& graph, const Plan& plan, Report& report) {
  std::vector<std::uint8_t> on_host(graph.ops.size(), 0), speculated(graph.ops.size(), 0);
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::commit && runs_on_host(instruction)) on_host[instruction.op] = 1;
  const bool takes_back = !plan.optimizer_in_backward;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (instruction.kind != InstructionKind::speculate) continue;
    if (!takes_back)
      report.add(fmt::format("{} speculates with the optimizer in backward", report.instruction(id)));
    if (plan.gate == no_id || id > plan.gate)
      report.add(fmt::format("{} speculates behind the gate", report.instruction(id)));
    if (!on_host[instruction.op])
      report.add(fmt::format("{} is never committed on the host", report.instruction(id)));
    if (speculated[instruction.op])
      report.add(fmt::format("{} is speculated twice", report.op(instruction.op)));
    speculated[instruction.op] = 1;
  }
}

void check_gate(const Graph& graph, const Plan& plan, Report& report) {
  if (plan.gate == no_id) {
    if (graph.clip != no_id) report.add("the plan has no gate");
    return;
  }
  const Instruction& gate = plan.instructions[plan.gate];
  if (gate.kind != InstructionKind::gate || !is_clip(graph, gate.op)) {
    report.add(fmt::format("the gate, {}, does not run the clip op", report.instruction(plan.gate)));
  }
}

}  // namespace

void check_program(const Graph& graph, const Plan& plan, Report& report) {
  check_counts(graph, plan, report);
  check_order(graph, plan, report);
  check_phases(graph, plan, report);
  check_gates(graph, plan, report);
}

void check_gates(const Graph& graph, const Plan& plan, Report& report) {
  check_gate(graph, plan, report);
  check_speculations(graph, plan, report);
  check_kinds(graph, plan, report);
  if (!plan.optimizer_in_backward) return;
  if (const std::string reason = why_updates_wait(graph); !reason.empty())
    report.add("the plan makes updates before the gate for good, but " + reason);
}

}  // namespace stowage::validation
