// `stowage plan`: whether a saved graph's step fits a budget, and what the plan does about it.
#pragma once

#include <string>

#include "stowage/machine_file.h"
#include "stowage/planner.h"

namespace stowage {

struct PlanCommand {
  std::string graph_file;    // to_json(Graph)
  std::string machine_file;  // to_json(MachineFile); empty: `machine`
  Machine machine;
  Budget budget;
  PlanOptions options;
  std::string plan_file;  // where to write to_json(Plan); empty: nowhere
};

// Appends the answer for people to `output`. Returns the exit code: 0 it fits, 2 it does not.
// Throws InvalidInput naming the file that cannot be read, parsed or written.
int run_plan_command(const PlanCommand& command, std::string& output);

}  // namespace stowage
