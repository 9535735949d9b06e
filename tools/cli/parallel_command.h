// `stowage parallel`: which parallelism, by anybody's costs of the layers, or for a model on a cluster by
// plans of its stages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "offload/parallel/search.h"
#include "tools/choices/plan_choice.h"
#include "tools/cli/model_costs.h"

namespace CLI {
class App;
}

namespace stowage {

struct ParallelCommand {
  std::string costs_file;       // as parallel_costs_from_json reads it; empty: the question is about a model
  std::optional<int> devices;   // instead of the file's
  std::optional<Bytes> memory;  // of each device, instead of the file's
  std::optional<ParallelObjective> objective;  // instead of the file's
  std::optional<std::uint64_t> most_work;      // combinations; for a model, plans of stages
  // For a model: its words, its machine with so many nodes, or a cluster's file.
  ModelWords model{};
  std::string machine{}, cluster_file{};
  std::filesystem::path machines{};  // folder of the machines that come with Stowage
  std::optional<int> nodes;
  PlanChoice plans{};
  Rung highest = Rung::plans;
  bool asks_for_plans = false;  // an option of plans, or the rung, was given
  bool json = false;
  std::string trace_file;  // empty: none
  std::function<void(const std::string&)> progress = [](const std::string&) {};
  std::function<bool()> stop = [] { return false; };  // asked now and then; true ends the search
};

// Appends the answer to `output`. Returns the exit code: 0 there is a pipeline, 2 there is none, 130 the
// search was stopped (the best so far is printed). Throws InvalidInput that names the option, or the file and
// its field.
int run_parallel_command(const ParallelCommand& command, std::string& output);

// The command line before it is parsed. Must outlive the parsing.
struct RawParallelOptions {
  ParallelCommand command;
  std::optional<int> devices, nodes;
  std::string memory, objective, rung;  // "": not given
  std::optional<std::uint64_t> most_work;
  RawPlanOptions plans{};
};

CLI::App* add_parallel(CLI::App& app, RawParallelOptions& raw);

// Throws InvalidInput that names the option and says what it takes.
ParallelCommand parse(const RawParallelOptions& raw);

}  // namespace stowage
