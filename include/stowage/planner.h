// make_plan: graph, machine and budget in, plan out. Pure functions: no device, clock or thread.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

enum class Policy : std::uint8_t {
  automatic,  // the fastest plan that fits
  none,       // everything on the device, nothing recomputed: what the step *needs*
  // Emulations of other systems as plans, for comparisons by one engine and one simulation. Each says in
  // offload/plan/policies/ what of its original it reproduces. The fastest of the original's configurations
  // that fits is taken.
  zero_offload,   // Ren et al., USENIX ATC 2021
  zero_infinity,  // Rajbhandari et al., SC 2021
  gemini_cpu,     // Colossal-AI's Gemini with the placement policy "cpu"
  layer_stream,   // STRONGHOLD: Sun et al., SC 2022
  checkpoint,     // Chen et al., 2016: everything resident, blocks recomputed
};
inline constexpr std::array every_policy{Policy::automatic,     Policy::none,       Policy::zero_offload,
                                         Policy::zero_infinity, Policy::gemini_cpu, Policy::layer_stream,
                                         Policy::checkpoint};

// "auto", "none", "zero-offload", … as the command line and Plan::policy have them.
std::string_view to_string(Policy policy);
std::optional<Policy> policy_from(std::string_view name);
// Whether the policy stands for another system.
bool is_emulated(Policy policy);
// For people: the name, with "(emulated)" where it stands for another system. Takes any text.
std::string policy_label(std::string_view name);

// What the automatic policy may rebuild in backward.
enum class Replays : std::uint8_t {
  within_blocks,  // any part of each half-block
  // All of a Transformer block's activations (with micro-batches: a half-block's) or none, from its input, as
  // most systems checkpoint: to compare with (docs/recompute.md).
  whole_blocks,
};

struct PlanOptions {
  Policy policy = Policy::automatic;
  Bytes bucket_bytes = 0;  // 0: chosen from the link's curve
  // Of micro-batches; nothing: whichever is faster. Without effect on a graph that has one order alone.
  std::optional<MicroBatchOrder> order = std::nullopt;
  Replays replays = Replays::within_blocks;  // of Policy::automatic
};

// The plan family does not depend on the budget; a budget takes its fastest member that fits, so
// more memory never makes a slower plan, and every budget from the minimum up is feasible.
std::variant<Plan, Infeasible> make_plan(const Graph& graph, const Machine& machine, const Budget& budget,
                                         const PlanOptions& options = {});

// The same question under many budgets: what depends on none of them, the plan family above all, is made
// once. Keeps references: graph and machine must outlive it. One thread at a time.
class Planner {
 public:
  Planner(const Graph& graph, const Machine& machine, const PlanOptions& options = {});
  ~Planner();
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;

  // What make_plan answers.
  std::variant<Plan, Infeasible> plan(const Budget& budget);
  // What the functions below answer.
  Bytes need_bytes();
  Bytes minimum_bytes();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

// Planned peak of Policy::none: *need*. Of the minimum-memory plan: *minimum*; with a policy that emulates
// another system the least peak of its configurations, which may depend on the machine's rates.
Bytes need_bytes(const Graph& graph, const Machine& machine);
Bytes minimum_bytes(const Graph& graph, const Machine& machine, const PlanOptions& options = {});

// Discrete events over the lanes, periodic steady state.
Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine);

// Judges a plan without knowing how it was made, over three unrolled steps. Returns what is wrong,
// one sentence each; empty: valid. `budget` in device and host bytes.
std::vector<std::string> validate(const Graph& graph, const Plan& plan, const Budget& budget);

}  // namespace stowage
