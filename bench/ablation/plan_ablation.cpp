// Measures what each technique of the planner buys: step time and planning time without it, over models,
// machines and budgets. Prints Markdown. bench/ablation/run adds traces of unusual steps.
//
//   plan_ablation MACHINE… [--trace FILE]… [--budgets 5] [--only "host memory"]
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "offload/plan/problem/settings.h"
#include "src/machine/chosen_machine.h"
#include "stowage/machine_file.h"
#include "stowage/planner.h"
#include "stowage/trace.h"
#include "tools/choices/machine_choice.h"
#include "tools/choices/model_spec.h"

namespace stowage {
namespace {

struct Technique {
  std::string name;
  std::function<void(PlannerSettings&)> without;
};
const std::vector<Technique>& techniques() {
  using S = PlannerSettings;
  static const std::vector<Technique> all{
      {"nothing switched off", [](S&) {}},
      {"one row of device memory instead of 18", [](S& s) { s.memory_moments = 1; }},
      {"one share of the memory instead of ten", [](S& s) { s.rooms = {0.9}; }},
      {"no cuts", [](S& s) { s.cuts = false; }},
      {"no updates before the gate", [](S& s) { s.speculates = false; }},
      {"no whole blocks", [](S& s) { s.whole_blocks = false; }},
      {"no joined units", [](S& s) { s.joined_units.clear(); }},
      {"no second look at divided items", [](S& s) { s.undivided = 1e9; }},
      {"no balanced rounding", [](S& s) { s.alone_share = 1; }},
      {"no leads of places", [](S& s) { s.place_leads = {}; }},
      {"no spills", [](S& s) { s.spills = false; }},
      {"no remakes", [](S& s) { s.remakes = false; }},
      {"no efficient buckets", [](S& s) { s.efficient_buckets = false; }},
      {"no price of transfers and replays",
       [](S& s) { s.transfer_risk = s.transfer_risk_on_cores = s.replay_price = 0; }},
      {"no price of traffic and occupancy", [](S& s) { s.traffic_price = s.occupancy_price = 0; }},
      {"cells 5 % apart", [](S& s) { s.fine_step = s.coarse_step = 0.05; }},
      {"no amounts of host memory", [](S& s) { s.host_range = 1; }},
      {"patience of one cell", [](S& s) { s.patience = 1; }},
      {"no local search", [](S& s) { s.trials = 0; }},
      {"no search for places", [](S& s) { s.search = false; }},
  };
  return all;
}

struct Case {
  std::string name;
  Graph graph;
  Machine machine;
};
struct Outcome {
  std::vector<double> steps;  // by case and budget
  double seconds = 0;         // processor seconds of planning
};

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Case model_case(const std::string& machine_name, const ModelWords& words) {
  const MachineFile file = read_machine(machine_name, machines_folder());
  Case made{machine_name + " " + words.gpt + words.bert, build(*model_spec(words, usual_type(file))), {}};
  made.machine = machine_for(file, work_type(made.graph));
  set_op_seconds(file, work_type(made.graph), made.machine, made.graph);
  return made;
}
Case trace_case(const std::string& machine_name, const std::string& path) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Case made{machine_name + " " + path, graph_from_trace(text), {}};
  made.machine = machine_for(read_machine(machine_name, machines_folder()), work_type(made.graph));
  return made;
}

// Returns the budgets of arenas from 1.2 times the minimum's arena to the need's. Each arena is the same
// factor larger than the one before.
std::vector<Bytes> budgets_of(const Case& each, int count) {
  const Machine& machine = each.machine;
  Planner planner(each.graph, machine);
  const double least = 1.2 * static_cast<double>(machine.arena_in(planner.minimum_bytes()));
  const double most = std::max(least, static_cast<double>(machine.arena_in(planner.need_bytes())));
  std::vector<Bytes> budgets;
  for (int i = 0; i < count; ++i)
    budgets.push_back(machine.budget_for(
        static_cast<Bytes>(least * std::pow(most / least, i / std::max(1.0, count - 1.0)))));
  return budgets;
}

Outcome outcome_of(const std::vector<Case>& cases, const std::vector<std::vector<Bytes>>& budgets,
                   const Technique& technique) {
  Outcome outcome;
  const double begin = processor_seconds();
  for (std::size_t c = 0; c < cases.size(); ++c)
    for (const Bytes budget : budgets[c]) {
      PlanOptions options;
      technique.without(own_settings(options));
      const auto planned = make_plan(cases[c].graph, cases[c].machine, {.device = budget}, options);
      const Plan* plan = std::get_if<Plan>(&planned);
      outcome.steps.push_back(plan != nullptr ? plan->predicted_step_seconds : NAN);
    }
  outcome.seconds = processor_seconds() - begin;
  return outcome;
}

void print_row(const Technique& technique, const Outcome& outcome, const Outcome& whole) {
  double sum = 0, most = 0, best = 0;
  for (std::size_t i = 0; i < outcome.steps.size(); ++i) {
    const double change = outcome.steps[i] / whole.steps[i] - 1;
    sum += change;
    most = std::max(most, change);
    best = std::min(best, change);
  }
  fmt::print("| {} | {:+.2f} | {:+.1f} | {:+.1f} | {:.1f} |\n", technique.name,
             100 * sum / static_cast<double>(outcome.steps.size()), 100 * most, 100 * best, outcome.seconds);
}

void run(const std::vector<std::string>& machines, const std::vector<std::string>& traces, int count,
         const std::string& only) {
  std::vector<Case> cases;
  for (const std::string& machine : machines) {
    for (const char* gpt : {"12x768", "24x2048", "40x5120"})
      cases.push_back(model_case(machine, {.gpt = gpt, .sequence = "1024", .batch = "8"}));
    cases.push_back(model_case(machine, {.gpt = "48x64", .sequence = "128", .batch = "4"}));
    cases.push_back(model_case(machine, {.bert = "large", .sequence = "512", .batch = "32"}));
    for (const std::string& trace : traces) cases.push_back(trace_case(machine, trace));
  }
  std::vector<std::vector<Bytes>> budgets;
  for (const Case& each : cases) budgets.push_back(budgets_of(each, count));
  fmt::print("| switched off | step, mean % | worst % | best % | planning s |\n|---|---|---|---|---|\n");
  Outcome whole;
  for (const Technique& technique : techniques()) {
    const bool is_whole = whole.steps.empty();
    if (!is_whole && technique.name.find(only) == std::string::npos) continue;
    const Outcome outcome = outcome_of(cases, budgets, technique);
    if (is_whole) whole = outcome;
    print_row(technique, outcome, whole);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace stowage

int main(int argc, char** argv) {
  CLI::App app{"What each technique of the planner buys in step time and costs in planning time."};
  std::vector<std::string> machines{"rtx4090"}, traces;
  std::string only;
  int budgets = 5;
  app.add_option("machines", machines, "names or files");
  app.add_option("--trace", traces, "more steps");
  app.add_option("--budgets", budgets, "for each step");
  app.add_option("--only", only, "techniques with this in their names");
  CLI11_PARSE(app, argc, argv);
  stowage::run(machines, traces, budgets, only);
}
