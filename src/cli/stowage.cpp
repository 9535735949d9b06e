// The stowage command. Exit codes: 0 yes, 2 no or bad input, 1 anything else.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "src/cli/calibrate_command.h"
#include "src/cli/plan_command.h"
#include "stowage/error.h"

namespace {

stowage::Bytes limit(const std::string& text) {
  return text == "unlimited" ? stowage::unlimited : stowage::parse_bytes(text);
}

// What CLI11 fills in before the words are understood.
struct PlanWords {
  std::string device = "unlimited", host = "unlimited", bucket = "auto", policy = "auto";
};

CLI::App* add_plan(CLI::App& app, stowage::PlanCommand& command, PlanWords& words) {
  CLI::App* plan = app.add_subcommand("plan", "Does a saved graph's step fit, and at what price");
  plan->add_option("GRAPH", command.graph_file, "graph saved as JSON")->required();
  plan->add_option("--machine", command.machine_file, "the machine to plan for, as calibrate wrote it");
  plan->add_option("--device-memory", words.device, "device budget: SIZE or unlimited")
      ->capture_default_str();
  plan->add_option("--host-memory", words.host, "host budget: SIZE or unlimited")->capture_default_str();
  plan->add_option("--bucket-size", words.bucket, "parameter bucket: SIZE or auto")->capture_default_str();
  plan->add_option("--policy", words.policy, "auto or none")
      ->check(CLI::IsMember({"auto", "none"}))
      ->capture_default_str();
  plan->add_option("--plan-json", command.plan_file, "write the plan here");
  return plan;
}

int plan(stowage::PlanCommand command, const PlanWords& words, std::string& output) {
  command.budget = {limit(words.device), limit(words.host)};
  command.options = {words.policy == "none" ? stowage::Policy::none : stowage::Policy::automatic,
                     words.bucket == "auto" ? 0 : stowage::parse_bytes(words.bucket)};
  return stowage::run_plan_command(command, output);
}

CLI::App* add_calibrate(CLI::App& app, stowage::CalibrateCommand& command) {
  CLI::App* calibrate =
      app.add_subcommand("calibrate", "Measures this machine for plan --machine and train_gpt --machine");
  calibrate->add_option("--device", command.device, "auto, cuda, cuda:N or simulated")->capture_default_str();
  calibrate->add_flag("--quick", command.quick, "in less than a second instead of some twenty");
  calibrate->add_option("--link", command.link,
                        "the simulated device's link, each way: RATE or unthrottled (8GB/s)");
  calibrate->add_option("--output", command.output_file, "write the machine's file here")->required();
  return calibrate;
}

int run(int count, char** arguments) {
  CLI::App app{"Stowage: plans and runs training steps in less device memory than they need"};
  app.require_subcommand(1);
  stowage::PlanCommand plan_command;
  PlanWords plan_words;
  stowage::CalibrateCommand calibrate_command;
  const CLI::App* plan_app = add_plan(app, plan_command, plan_words);
  add_calibrate(app, calibrate_command);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::string output;
  const int code = plan_app->parsed() ? plan(plan_command, plan_words, output)
                                      : stowage::run_calibrate_command(calibrate_command, output);
  std::fputs(output.c_str(), stdout);
  return code;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const stowage::InvalidInput& error) {
    std::fprintf(stderr, "stowage: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stowage: %s\n", error.what());
    return 1;
  }
}
