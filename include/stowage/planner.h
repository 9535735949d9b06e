// make_plan: graph, machine and budget in, plan out. Pure functions: no device, clock or thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

enum class Policy : std::uint8_t {
  automatic,  // the fastest plan that fits, by predicted time and price
  none,       // everything on the device, nothing recomputed: what the step *needs*
  // Emulations of other systems as plans, for comparisons by one engine and one simulation. The files in
  // offload/plan/policies/ say what of each original they reproduce. The fastest of the original's
  // configurations that fits is taken.
  zero_offload,   // Ren et al., USENIX ATC 2021
  zero_infinity,  // Rajbhandari et al., SC 2021
  gemini_cpu,     // Colossal-AI's Gemini with the placement policy "cpu"
  layer_stream,   // STRONGHOLD: Sun et al., SC 2022
  checkpoint,     // Chen et al., 2016: everything resident, blocks recomputed
  fsdp2,          // PyTorch's fully_shard with CPUOffloadPolicy
};
inline constexpr std::array every_policy{Policy::automatic,     Policy::none,       Policy::zero_offload,
                                         Policy::zero_infinity, Policy::gemini_cpu, Policy::layer_stream,
                                         Policy::checkpoint,    Policy::fsdp2};

// "auto", "none", "zero-offload", … as the command line and Plan::policy have them.
std::string_view to_string(Policy policy);
std::optional<Policy> policy_from(std::string_view name);
// True if the policy stands for another system.
bool is_emulated(Policy policy);
// Returns the name for people, with "(emulated)" if it stands for another system. Takes any text.
std::string policy_label(std::string_view name);

// The parts of the step that the automatic policy may rebuild in backward.
enum class Replays : std::uint8_t {
  within_blocks,  // may rebuild any part of each half-block
  // A Transformer block's activations (with micro-batches: a half-block's) all or not at all, from its input,
  // as most systems checkpoint. For comparisons (docs/recompute.md).
  whole_blocks,
};

// Constants of the automatic policy (offload/plan/problem/settings.h).
struct PlannerSettings;

struct PlanOptions {
  Policy policy = Policy::automatic;
  // Target size of a parameter bucket. 0: the automatic policy tries one tensor in each bucket, and the size
  // that the link's curve makes efficient; an emulated system has sizes of its own.
  Bytes bucket_bytes = 0;
  // The order of micro-batches. Not set: the policy chooses between layer_major and ahead(1). On a graph that
  // can be run in one order only, these two have no effect. Any other `ahead` that the graph has no order
  // for (no forwards, or more than micro-batches, or micro-batches that need one another) is InvalidInput.
  std::optional<MicroBatchOrder> order = std::nullopt;
  Replays replays = Replays::within_blocks;  // replays of Policy::automatic
  // Host updates may be made for good before the gate (Plan::optimizer_in_backward), each as soon as its
  // gradient is there. Such a gradient needs no host memory of its own, and no update an undo record. The
  // price: a step whose loss or gradients are not finite, or that fails before its gate, leaves weights and
  // optimizer state lost. An update that the plan leaves behind the gate keeps its gradient until then: that
  // is faster if forward hides it, so give less of Budget::host to have fewer such updates. Requires
  // Policy::automatic and a graph that neither clips gradients nor has f16 parameters, whose steps may have
  // to be left out; else InvalidInput.
  bool optimizer_in_backward = false;
  // Policy::automatic only. True: host updates may begin before the gate if that is faster
  // (InstructionKind::speculate).
  bool speculates = true;
  // Settings of Policy::automatic, for tests and ablations. Null: the defaults.
  std::shared_ptr<const PlannerSettings> settings{};
  // Ends planning from any thread, through its stop_source. The planner's call under way throws Cancelled
  // within a fraction of a second, and so does every later call that needs something new.
  std::stop_token stop{};
};

// Seconds that count against a plan beside its predicted time (PlannerSettings::transfer_risk, replay_price).
struct PlanPrice {
  double transfers = 0, replays = 0;
};

// The answer to a budget. Device bytes in it, also in Infeasible, are device budgets: they include
// Machine::overhead_bytes, so each can be asked for. The fields of a Plan leave the overhead out:
// Plan::device_peak_bytes is the size of the arena, as the engine allocates it. Plan::lower_bound_seconds is
// the lower bound for every plan in this budget.
struct Answer {
  std::variant<Plan, Infeasible> outcome;
  Bytes need = 0;     // budget with everything on the device and nothing recomputed, as Policy::none
  Bytes minimum = 0;  // smallest budget that works, given enough host memory
  Bytes peak = 0;     // the smallest budget that the plan fits into; 0 without a plan
  PlanPrice price{};  // price of the plan
  // True: the search ended because nothing else can be faster by more than PlannerSettings::close_enough, or
  // nothing was left to look at. False: the search ended at its limits of work.
  bool is_complete = true;
};

// The planner of one graph on one machine. It keeps the plans that it makes and offers each to every later
// budget that it fits into: of budgets asked in rising order none gets a plan of more time and price than one
// before. Keeps references: graph and machine must outlive it. Used by one thread at a time.
//
// The answer to a budget is the plan of least time and price (PlannerSettings::transfer_risk) found among
// those that fit into it. Given enough host memory, every device budget from the minimum up is feasible. More
// memory makes a plan's time and price larger by no more than PlannerSettings::close_enough, unless most_work
// and patience end the search before (docs/planning.md). Budgets that were asked before may change a plan's
// time by as much.
class Planner {
 public:
  Planner(const Graph& graph, const Machine& machine, const PlanOptions& options = {});
  ~Planner();
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;

  // Throws InvalidInput for a graph without a loss and a clip op, Cancelled if PlanOptions::stop asks for it;
  // the functions below, too.
  Answer answer(const Budget& budget);
  // True if a short search finds a plan. Where it finds none, `answer` searches longer, also for plans of few
  // host bytes, and may have one.
  bool fits(const Budget& budget);
  // Return Answer::need and Answer::minimum, which depend on no budget. The minimum of an emulated system is
  // the least of its configurations and may depend on the machine's rates.
  Bytes need_bytes();
  Bytes minimum_bytes();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

// Same for a single question: each makes a Planner and returns Answer::outcome, need or minimum.
std::variant<Plan, Infeasible> make_plan(const Graph& graph, const Machine& machine, const Budget& budget,
                                         const PlanOptions& options = {});
Bytes need_bytes(const Graph& graph, const Machine& machine);
Bytes minimum_bytes(const Graph& graph, const Machine& machine, const PlanOptions& options = {});

// How speculated updates end, alike in every step.
enum class Clipping : std::uint8_t {
  none,        // updates stay as they are
  unexpected,  // updates are undone and made again
  expected,    // no updates before the gate, as in the engine when it expects clipping
};
// Predicts when each instruction of the plan runs on this machine, step after step, once all steps take the
// same time.
Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine,
                  Clipping clipping = Clipping::none);

// Judges a plan without knowing how it was made, over three unrolled steps. Refuses a plan that reads a value
// before it is there, overlaps two live ranges, breaks a budget, loses a gradient or applies it twice, leaves
// a parameter stale, or deadlocks. Returns a sentence for each fault, at most 1,000; empty: valid. Knows no
// machine: `budget.device` limits the arena (Machine::arena_in).
std::vector<std::string> validate(const Graph& graph, const Plan& plan, const Budget& budget);

}  // namespace stowage
