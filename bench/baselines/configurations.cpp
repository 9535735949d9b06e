// Prints as JSON what each configuration of an emulated system would do with one model on one machine. The
// policy takes the fastest configuration that fits; a published figure belongs to one configuration.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "offload/plan/policies/policies.h"
#include "src/machine/chosen_machine.h"
#include "stowage/error.h"
#include "tools/choices/machine_choice.h"
#include "tools/choices/model_spec.h"

namespace {

using Json = nlohmann::ordered_json;

struct Words {
  stowage::ModelWords model;
  std::string machine, policy = "zero-offload";
};

Json configurations(const Words& words) {
  const stowage::MachineFile file = stowage::read_machine(words.machine, stowage::machines_folder());
  const auto spec = stowage::model_spec(words.model, stowage::usual_type(file));
  const auto policy = stowage::policy_from(words.policy);
  if (!spec || !policy) throw stowage::InvalidInput("give --gpt LAYERSxWIDTH and the name of a --policy");
  const stowage::Graph graph = build(*spec);
  const stowage::Machine machine = stowage::machine_for(file, spec->type);
  stowage::PolicyProblems problems(graph, machine, 0);
  Json found = Json::array();
  for (const stowage::PolicyMember& member : stowage::policy_members(*policy, problems)) {
    const stowage::Plan plan = stowage::policy_plan(member);
    found.push_back({{"policy", plan.policy},
                     {"emulated", true},
                     {"activations", to_string(member.activations)},
                     {"transfers_ahead", member.distance},
                     {"bucket_bytes", plan.bucket_bytes},
                     {"device_bytes", machine.budget_for(plan.device_peak_bytes)},
                     {"host_bytes", plan.host_bytes},
                     {"h2d_bytes", plan.h2d_bytes},
                     {"d2h_bytes", plan.d2h_bytes},
                     {"step_seconds", plan.predicted_step_seconds},
                     {"stall_seconds", plan.predicted_stall_seconds}});
  }
  return found;
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app{"Every configuration of an emulated system: memory and step time, as JSON"};
  Words words;
  app.add_option("--gpt", words.model.gpt, "LAYERSxWIDTH or a name")->required();
  app.add_option("--heads", words.model.heads, "attention heads");
  app.add_option("--batch", words.model.batch, "samples per step");
  app.add_option("--sequence", words.model.sequence, "tokens per sample");
  app.add_option("--machine", words.machine, "a name or a machine file")->required();
  app.add_option("--policy", words.policy,
                 "zero-offload, zero-infinity, gemini-cpu, layer-stream, checkpoint, fsdp2");
  CLI11_PARSE(app, count, arguments);
  try {
    std::cout << configurations(words).dump(1) << '\n';
    return 0;
  } catch (const stowage::InvalidInput& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
