// The answer of `stowage plan` for one step under one budget: the numbers, for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

#include "stowage/machine_file.h"
#include "stowage/planner.h"
#include "tools/answer/model_spec.h"
#include "tools/console/text.h"
#include "tools/report/tally.h"

namespace stowage {

struct PlanQuestion {
  Graph graph;
  std::string source;              // origin of the graph, for error messages
  std::optional<ModelSpec> model;  // model that the graph was built from
  std::string machine;             // name for people; empty: the planner's default machine
  Machine rates;
  // The file whose samples give the ops their times. The caller keeps the file alive; null: the ops' times
  // come from the rates alone.
  const MachineFile* measured = nullptr;
  Budget budget;                   // device memory of each device; host memory of all devices together
  bool host_from_machine = false;  // the host budget is host_budget_for(*measured, devices())
  std::string machine_file;        // the file's name as given to --machine
  PlanOptions options;

  // Returns the number of devices that train the model together. The graph is that of the first device.
  std::int64_t devices() const { return model ? model->config.ranks : 1; }
  // Returns the budget of each device, which has an equal part of the host's.
  Budget budget_of_each() const;

  // Sets the budgets of `devices` devices: `device` and `host` if given, else the memory that `measured` has,
  // else no limit.
  void take_budget(std::optional<Bytes> device, std::optional<Bytes> host, int devices);

  // Sets the graph, whose ops take their times from `measured` and `rates`.
  void take(Graph step);

  // Returns the tokens of one step: the model's, or those of an input called "tokens"; 0: not known.
  std::uint64_t tokens() const;
};

// Bytes count against a device budget, as in Answer, unless the name says otherwise. With several devices,
// host bytes are the sum over all devices; everything else, except the batch, counts for one device.
struct PlanAnswer {
  bool feasible = false;
  Policy policy = Policy::automatic;
  Bytes need = 0;
  Bytes minimum = 0;             // the smallest budget that works
  Bytes overhead = 0;            // part of `need`, of `minimum` and of every budget
  Bytes overhead_for_peers = 0;  // part of `overhead`
  Budget budget;
  bool host_from_machine = false;  // copied from PlanQuestion
  std::string machine_file;        // copied from PlanQuestion
  std::uint64_t parameters = 0;    // number of elements
  std::uint64_t trained = 0;       // elements of the parameters that are trained
  std::uint64_t tokens = 0;        // tokens of a step; 0: not known
  std::uint32_t micro_batches = 1;
  std::uint32_t gradient_groups = 1;
  std::int64_t devices = 1;

  // If the step does not fit: the memory that is too small, the bytes that would suffice, and the op that
  // needs them.
  bool lacks_host = false;
  Bytes smallest = 0;
  bool smallest_is_at_most = false;  // Infeasible::at_most
  std::string op;

  // If the step fits:
  MicroBatchOrder order = MicroBatchOrder::layer_major;
  Bytes peak = 0;
  Bytes arena = 0;       // arena bytes in `peak`
  Bytes live_arena = 0;  // least arena that any placement of these lifetimes can have
  Bytes host = 0;
  Bytes pinned = 0;
  Bytes h2d = 0;  // bytes per step
  Bytes d2h = 0;
  Bytes peers = 0;  // bytes received from the other devices
  PeerPath peer_path = PeerPath::apart;
  Bytes bucket = 0;         // target size of a parameter bucket; 0: each tensor has its own
  bool is_complete = true;  // Answer::is_complete
  double step_seconds = 0;
  PlanPrice price;
  double stall_seconds = 0;
  double half_clipped_seconds = 0, clipped_seconds = 0;
  double lower_bound_seconds = 0;
  std::string bound_by;  // Plan::bound_by
  PlanTally where;
  HostTally on_host;
  HostTraffic host_traffic;                 // of one device
  double host_bytes_per_second = as_alone;  // Machine::host_total_bytes_per_second

  // Returns how much longer than the lower bound the step is, as a fraction of the bound.
  double gap() const { return lower_bound_seconds > 0 ? step_seconds / lower_bound_seconds - 1 : 0; }
  double tokens_per_second() const {
    return step_seconds > 0 ? static_cast<double>(tokens) / step_seconds : 0;
  }
};

// Plans and validates. `plan` receives the plan where there is one. Throws InvalidInput for a graph whose
// plan the validator rejects.
PlanAnswer answer(const PlanQuestion& question, Plan* plan = nullptr);
// Asks a planner of the question's graph, rates and options, which may serve many budgets.
PlanAnswer answer(const PlanQuestion& question, Planner& planner, Plan* plan = nullptr);

// The lines that an answer and the trainers' table share.
struct NeedLines {
  Bytes need = 0, minimum = 0, budget = 0;
  Bytes overhead = 0, overhead_for_peers = 0;  // `overhead_for_peers` is a part of `overhead`
};
void add_need(Lines& lines, const NeedLines& need);
// Adds lines that say where the plan keeps parameters, optimizer state
// and activations. `bucket`: Plan::bucket_bytes.
void add_tally(Lines& lines, const PlanTally& where, Bytes bucket);
void add_clipped(Lines& lines, double half_clipped_seconds, double clipped_seconds);
// Adds what fills host memory, if that is what binds (Plan::bound_by). `bytes_per_second`: of all its users.
void add_host_traffic(Lines& lines, const std::string& bound_by, const HostTraffic& traffic,
                      double bytes_per_second);

// Returns the words behind a host budget that say where it is from, if the machine's file set it.
std::string host_budget_source(const PlanAnswer& answer);

// Returns one screen of lines.
std::string describe(const PlanQuestion& question, const PlanAnswer& answer);

// Returns one object. Values that make no sense for a step that does not fit are null.
nlohmann::ordered_json to_json(const PlanAnswer& answer);
// Adds the model and the machine that were asked for.
nlohmann::ordered_json to_json(const PlanQuestion& question, const PlanAnswer& answer);

// Returns a sentence that says what would suffice, and why: "h.0.mlp needs 1.00 MiB (1048576 bytes) of device
// memory; the smallest …".
std::string refusal(const PlanAnswer& answer);

}  // namespace stowage
