// The stowage command. Exit codes: 0 yes, 2 no or bad input, 1 anything else.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "src/cli/plan_command.h"
#include "stowage/error.h"

namespace {

stowage::Bytes limit(const std::string& text) {
  return text == "unlimited" ? stowage::unlimited : stowage::parse_bytes(text);
}

int run(int count, char** arguments) {
  CLI::App app{"Stowage: plans and runs training steps in less device memory than they need"};
  app.require_subcommand(1);
  CLI::App* plan = app.add_subcommand("plan", "Does a saved graph's step fit, and at what price");
  stowage::PlanCommand command;
  std::string device = "unlimited", host = "unlimited", bucket = "auto", policy = "auto";
  plan->add_option("GRAPH", command.graph_file, "graph saved as JSON")->required();
  plan->add_option("--device-memory", device, "device budget: SIZE or unlimited")->capture_default_str();
  plan->add_option("--host-memory", host, "host budget: SIZE or unlimited")->capture_default_str();
  plan->add_option("--bucket-size", bucket, "parameter bucket: SIZE or auto")->capture_default_str();
  plan->add_option("--policy", policy, "auto or none")
      ->check(CLI::IsMember({"auto", "none"}))
      ->capture_default_str();
  plan->add_option("--plan-json", command.plan_file, "write the plan here");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  command.budget = {limit(device), limit(host)};
  command.options = {policy == "none" ? stowage::Policy::none : stowage::Policy::automatic,
                     bucket == "auto" ? 0 : stowage::parse_bytes(bucket)};
  std::string output;
  int code = stowage::run_plan_command(command, output);
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
