// `stowage plan`: whether a training step fits a machine, and what the plan does about it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "stowage/planner.h"
#include "tools/choices/model_spec.h"
#include "tools/choices/plan_choice.h"
#include "tools/cli/plan_sweep.h"

namespace stowage {

struct PlanCommand {
  // Exactly one of these says what to plan.
  std::string graph_file;  // path of to_json(Graph), or of a trace (trace.h)
  ModelWords model;        // model of --model, --gpt or --bert
  bool max_model = false;
  std::vector<std::string> compare;  // two files, each to_json(Plan), to compare instead of planning

  std::string machine;  // file or name (machine_choice.h), or "list"; empty: `rates`
  std::filesystem::path machines;
  Machine rates;
  std::optional<Bytes> device_memory;  // nullopt: the machine's memory; without a machine unlimited
  std::optional<Bytes> host_memory;    // nullopt: host_budget_for the machine; without one unlimited
  PlanOptions options;

  std::string sweep;        // text that parse_sweep takes; empty: no sweep
  std::string plan_file;    // file to write to_json(Plan) to; empty: none
  std::string report_file;  // file to write plan_report's page to, with a sweep over memory; empty: none
  bool json = false;        // prints the answer as JSON
  Progress progress = [](const std::string&) {};
};

// Appends the answer to `output`. Returns the exit code: 0 it fits (of a sweep: some row does), 2 it does
// not. Throws InvalidInput naming the option, or the file that cannot be read, parsed or written; nothing is
// written then.
int run_plan_command(const PlanCommand& command, std::string& output);

// The command line before it is parsed. Must outlive the parsing.
struct RawPlanCommand {
  PlanCommand command;  // settings except those in `options`
  RawPlanOptions options;
};
CLI::App* add_plan(CLI::App& app, RawPlanCommand& raw);

// Throws InvalidInput that names the option and says what it takes.
PlanCommand parse(const RawPlanCommand& raw);

}  // namespace stowage
