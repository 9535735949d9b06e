// The options of machine, budgets and plan that `stowage plan` and the trainers share: flags, help
// and parser.
#pragma once

#include <optional>
#include <string>

#include "stowage/planner.h"

namespace CLI {
class App;
}

namespace stowage {

// Option values as they are given.
struct RawPlanOptions {
  std::string machine;
  std::optional<std::string> device_memory, host_memory;
  std::string policy = "auto", bucket_size = "auto", speculate = "auto";
  bool optimizer_in_backward = false;
};

enum class PlanUser { plan, trainer };  // program whose defaults and consequences the help tells

// Adds --machine, --device-memory and --host-memory. `raw` must outlive the parsing.
void add_machine_options(CLI::App& app, PlanUser user, const char* group, RawPlanOptions& raw);
// Adds --policy, --bucket-size, --speculate and --optimizer-in-backward. `raw` must outlive the parsing.
void add_plan_options(CLI::App& app, PlanUser user, const char* group, RawPlanOptions& raw);

struct PlanChoice {
  std::optional<Bytes> device_memory, host_memory;  // nullopt: the option is not given
  PlanOptions options;
};
// Throws InvalidInput that names the option and says what it takes.
PlanChoice parse(const RawPlanOptions& raw);

}  // namespace stowage
