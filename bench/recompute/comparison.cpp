// Compares the automatic policy with replays within blocks and with replays of whole blocks, budget by
// budget. Prints JSON.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/machine/chosen_machine.h"
#include "stowage/error.h"
#include "tools/choices/machine_choice.h"
#include "tools/choices/model_spec.h"
#include "tools/cli/plan_sweep.h"

namespace {

using Json = nlohmann::ordered_json;

struct Words {
  stowage::ModelWords model;
  std::string machine;
  std::size_t budgets = 6;
};

// Returns the seconds of the step and of its replays as JSON. Throws Error if the validator refuses the plan.
Json planned(const stowage::Graph& graph, const stowage::Machine& machine, stowage::Bytes device,
             stowage::Replays replays) {
  const stowage::Answer answer = stowage::Planner(graph, machine, {.replays = replays}).answer({device});
  if (std::holds_alternative<stowage::Infeasible>(answer.outcome)) return {{"minimum_bytes", answer.minimum}};
  const auto& plan = std::get<stowage::Plan>(answer.outcome);
  const std::vector<std::string> findings = validate(graph, plan, {machine.arena_in(device)});
  if (!findings.empty()) throw stowage::Error("an invalid plan: " + findings.front());
  const stowage::Timeline timeline = simulate(graph, plan, machine);
  double rebuilding = 0;
  for (std::size_t id = 0; id < plan.instructions.size(); ++id)
    if (plan.instructions[id].kind == stowage::InstructionKind::recompute)
      rebuilding += timeline.instructions[id].end - timeline.instructions[id].begin;
  return {{"step_seconds", plan.predicted_step_seconds},
          {"rebuilding_seconds", rebuilding},
          {"device_bytes", answer.peak},
          {"lower_bound_seconds", plan.lower_bound_seconds}};
}

Json compare(const Words& words) {
  using enum stowage::Replays;
  const stowage::MachineFile file = stowage::read_machine(words.machine, stowage::machines_folder());
  const auto spec = stowage::model_spec(words.model, stowage::usual_type(file));
  if (!spec) throw stowage::InvalidInput("give --gpt LAYERSxWIDTH or --bert large");
  const stowage::Graph graph = build(*spec);
  const stowage::Machine machine = stowage::machine_for(file, spec->type);
  const stowage::Bytes minimum = minimum_bytes(graph, machine);
  const stowage::Bytes need = need_bytes(graph, machine);
  Json rows = Json::array();
  for (stowage::Bytes budget : stowage::sweep_budgets(minimum, need, words.budgets))
    rows.push_back({{"budget_bytes", budget},
                    {"within", planned(graph, machine, budget, within_blocks)},
                    {"whole", planned(graph, machine, budget, whole_blocks)}});
  return rows;
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app{"Replays within blocks and of whole blocks: the step time at each budget, as JSON"};
  Words words;
  app.add_option("--gpt", words.model.gpt, "LAYERSxWIDTH or a name");
  app.add_option("--bert", words.model.bert, "LAYERSxWIDTH, base or large");
  app.add_option("--heads", words.model.heads, "attention heads");
  app.add_option("--batch", words.model.batch, "samples per step");
  app.add_option("--sequence", words.model.sequence, "tokens per sample");
  app.add_option("--machine", words.machine, "a name or a machine file")->required();
  app.add_option("--budgets", words.budgets, "from the minimum to the need")->check(CLI::Range(2, 1000));
  CLI11_PARSE(app, count, arguments);
  try {
    std::cout << compare(words).dump(1) << '\n';
    return 0;
  } catch (const stowage::InvalidInput& error) {
    std::cerr << error.what() << '\n';
    return 2;
  } catch (const stowage::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
