#include "src/cli/plan_command.h"

#include <fmt/format.h>

#include "src/cli/files.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::uintmax_t largest_file = 1ULL << 30;

std::string describe(const Bytes bytes) { return fmt::format("{} ({} bytes)", format_bytes(bytes), bytes); }

std::string describe(const Plan& plan, const Budget& budget, Bytes need, Bytes minimum) {
  std::string budget_text = budget.device == unlimited ? "unlimited" : describe(budget.device);
  return fmt::format(
      "fits          yes\nneed          {}\nminimum       {}\nbudget        {}\npeak          {}\n"
      "host          {}\ntraffic       {} in, {} out per step\n"
      "step          {:.6g} s predicted, {:.6g} s lower bound ({})\n",
      describe(need), describe(minimum), budget_text, describe(plan.device_peak_bytes),
      describe(plan.host_bytes), format_bytes(plan.h2d_bytes), format_bytes(plan.d2h_bytes),
      plan.predicted_step_seconds, plan.lower_bound_seconds, plan.bound_by);
}

Machine machine_of(const PlanCommand& command, const Graph& graph, std::string& output) {
  if (command.machine_file.empty()) return command.machine;
  const MachineFile file = read_machine_file(command.machine_file);
  output += fmt::format("machine       {} on {}, measured {}\n", file.device, file.host, file.measured);
  return machine_for(file, work_type(graph));
}

}  // namespace

int run_plan_command(const PlanCommand& command, std::string& output) {
  const Graph graph =
      graph_from_json(read_file(command.graph_file, largest_file, "a graph saved with to_json"));
  const Machine machine = machine_of(command, graph, output);
  auto result = make_plan(graph, machine, command.budget, command.options);
  if (const auto* none = std::get_if<Infeasible>(&result)) {
    output +=
        fmt::format("fits          no: {} needs {} of {} memory; the smallest budget that works is {}\n",
                    none->op, describe(none->minimum), none->host ? "host" : "device", none->minimum);
    return 2;
  }
  const Plan& plan = std::get<Plan>(result);
  const std::vector<std::string> findings = validate(graph, plan, command.budget);
  if (!findings.empty())
    throw InvalidInput("'" + command.graph_file + "' has no sound plan: " + findings.front() +
                       "; check the graph's update phase");
  if (!command.plan_file.empty()) write_file(command.plan_file, to_json(plan));
  output += describe(plan, command.budget, need_bytes(graph, machine),
                     minimum_bytes(graph, machine, command.options));
  return 0;
}

}  // namespace stowage
