// Where a plan loses what it takes above the bound. For a saved step or a trace and device budgets from 1.5
// times its minimum to its need, prints a line of Markdown each: the lower bound, what the linear program of
// one variant (one tensor in each bucket, replays within units) says, the same for its choices, rounded in
// the better of the two ways, and the plan. In seconds, all predicted.
//
//   stages STEP [--machine rtx4090] [--budgets 6]
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "offload/plan/decisions/residency_program.h"
#include "offload/plan/schedule/candidate.h"
#include "stowage/error.h"
#include "stowage/machine_file.h"
#include "stowage/planner.h"
#include "stowage/trace.h"
#include "tools/choices/machine_choice.h"

namespace stowage {
namespace {

Graph read_step(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw InvalidInput("'" + path + "' cannot be read");
  return is_trace(text.view()) ? graph_from_trace(text.view()) : graph_from_json(text.view());
}

void run(const std::string& path, const std::string& machine_name, int budgets) {
  const MachineFile file = read_machine(machine_name, machines_folder());
  Graph graph = read_step(path);
  const Machine machine = machine_for(file, work_type(graph));
  set_op_seconds(file, work_type(graph), machine, graph);
  Planner planner(graph, machine);
  const PlannerSettings settings;
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const ResidencyProgram program(problem, settings);
  const auto least = static_cast<double>(planner.minimum_bytes()) * 1.5;
  const double range = std::max(1.0, static_cast<double>(planner.need_bytes()) / least);
  fmt::print("| budget | bound | program | rounded | plan |\n|---|---|---|---|---|\n");
  for (int i = 0; i < budgets; ++i) {
    const double part = static_cast<double>(i) / std::max(1, budgets - 1);
    const auto device = static_cast<Bytes>(least * std::pow(range, part));
    const ResidencyProgram::Mixture mixture = program.solve(machine.arena_in(device), unlimited);
    using Rounding = ResidencyProgram::Rounding;
    const double rounded = std::min(program.seconds(program.round(mixture, Rounding::by_kind)),
                                    program.seconds(program.round(mixture, Rounding::balanced)));
    const Answer answer = planner.answer({device, unlimited});
    const auto& plan = std::get<Plan>(answer.outcome);
    fmt::print("| {} | {:.4f} | {:.4f} | {:.4f} | {:.4f} |\n", device, plan.lower_bound_seconds,
               mixture.seconds, rounded, plan.predicted_step_seconds);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace stowage

int main(int argc, char** argv) {
  CLI::App app{"Where a plan loses what it takes above the bound."};
  std::string step, machine = "rtx4090";
  int budgets = 6;
  app.add_option("STEP", step, "a saved step or a trace")->required();
  app.add_option("--machine", machine, "a name of `stowage plan --machine list`, or a file");
  app.add_option("--budgets", budgets, "from 1.5 times the minimum to the need")->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  try {
    stowage::run(step, machine, budgets);
  } catch (const stowage::InvalidInput& error) {
    fmt::print(stderr, "stages: {}\n", error.what());
    return 2;
  }
}
