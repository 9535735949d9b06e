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

// Each technique of the automatic planner and each of its constants: documented, to switch and to vary in
// ablations (bench/ablation). The defaults are justified by the records in bench/results.
struct PlannerSettings {
  // Residency: which choices are looked at (offload/plan/residency_program.h).
  // Rows of device memory, each for one part of the step's stages; at most 19.
  std::size_t memory_moments = 18;
  // Several stages share a row. A stage counts if it has at least this share of the row's most live bytes.
  double alike_stages = 0.95;
  // Shares of a cell's memory that the program may fill, falling; transfers under way have the rest.
  std::vector<double> rooms{1, 0.97, 0.94, 0.9, 0.86, 0.8, 0.7, 0.6, 0.5, 0.4};
  // Where the program divides one item, and would lose more than this share of the memory by rounding it, the
  // program is solved again with each of the item's choices.
  double undivided = 0.01;
  // A phase's length is also counted in two pieces, one behind the other (offload/plan/step_cuts.h).
  bool cuts = true;
  // Cuts of the front are looked for under these shares of the memory, from the least that a step needs to
  // the most; at most 5.
  std::vector<double> cut_shares{0.1, 0.3, 0.6};
  // For a parameter in slices, the program is also solved with each of these shares of its slices on the
  // device.
  std::vector<double> slice_shares{0, 0.25, 0.5, 0.75, 1};
  // Values that are not used for a while leave the device wherever they are not, not between forward and
  // backward alone.
  bool spills = true;
  // Values that cross from one unit into the next may be made anew by the op that made them.
  bool remakes = true;
  // Besides buckets of single tensors, buckets that the link moves efficiently.
  bool efficient_buckets = true;
  // Besides replays of any part of a unit, replays of all of a Transformer block or nothing.
  bool whole_blocks = true;
  // Besides replays within units, replays within so many consecutive units as one, where at least this share
  // of the activations' bytes crosses units.
  std::vector<std::uint32_t> joined_units{3, 6};
  double crossing_share = 0.25;
  // How far the program's value may be from its own lower bound, as a share.
  double program_tolerance = 1e-4;
  // Transfers and replays may take longer than predicted. Plans are compared by their time plus this price:
  // for each transfer, in latencies of the link, and for each second of replayed ops. A device that computes
  // with the host's own cores (Machine::compute_beside_copy below 1) has its own price for a transfer:
  // threads wake for its begin and its end, some 30 us of processor time that no rate says. 20 small models in
  // half of their need (bench/ranking) took about the same processor time with 2 to 8 latencies, with 0.1 a
  // tenth more. Replays took no longer than predicted.
  double transfer_risk = 0.1;
  double transfer_risk_on_cores = 3;
  double replay_price = 1e-3;
  // These prices decide between choices that take the same time: seconds for each second of a transfer, and
  // steps for having all bytes on the device for the whole step.
  double traffic_price = 1e-3;
  double occupancy_price = 1e-4;

  // Cells (offload/plan/cells.h).
  // Device memory of one cell over that of the one before, less 1: up to fine_range times the minimum, and
  // above.
  double fine_step = 0.005, fine_range = 1.1, coarse_step = 0.02;
  // Host memory: the same, falling from the most that any plan needs to a host_range-th of it.
  double host_step = 0.05, host_range = 100;
  // No cell is looked at whose lower bound is closer than this to the best plan, as a share.
  double close_enough = 0.002;
  // … nor, once planning has taken so much work (ops of scheduled steps) and this many cells in a row brought
  // no faster plan, any further one.
  std::size_t most_work = 300'000;
  std::size_t patience = 6;
  // Changes of one item or of two that are tried of a cell's best choices. Graphs with more single changes
  // than that are left as they were rounded: what rounding costs them is little.
  std::size_t trials = 100;
  // Shares of a cell's memory that a schedule's live bytes may take: the first, and those behind it as long
  // as the schedule finds no places.
  std::vector<double> caps{0.99, 0.975, 0.96, 0.94, 0.92, 0.9, 0.85, 0.8, 0.7, 0.5};
  // A schedule that finds no places is followed by ones whose ops alone need at most this share of its bytes.
  double next_serial = 0.97;

  // Schedules of one cell that are placed.
  std::size_t most_placed = 6;
  // A branch-and-bound search for places, where the usual placement finds none (offload/plan/arena.h).
  bool search = true;
};

struct PlanOptions {
  Policy policy = Policy::automatic;
  Bytes bucket_bytes = 0;  // 0: chosen from the link's curve
  // Of micro-batches; nothing: whichever is faster. Without effect on a graph that has one order alone.
  std::optional<MicroBatchOrder> order = std::nullopt;
  Replays replays = Replays::within_blocks;  // of Policy::automatic
  PlannerSettings settings{};                // of Policy::automatic
  // Any thread may ask for an end of planning through it: what is under way throws Cancelled within a
  // fraction of a second. Its planner makes nothing new from then on.
  std::stop_token stop{};
};

// The answer to one budget. Device bytes in it, those of Infeasible included, are bytes of a device budget:
// Machine::overhead_bytes is in each of them, so any of them can be asked with again. What a Plan says of
// itself is without it: Plan::device_peak_bytes is the arena's size, as the engine allocates it. The bound of
// all plans in the budget is the plan's, too (Plan::lower_bound_seconds).
struct Answer {
  std::variant<Plan, Infeasible> outcome;
  Bytes need = 0;     // with everything on the device and nothing recomputed: what Policy::none takes
  Bytes minimum = 0;  // the smallest that works, given enough host memory
  Bytes peak = 0;     // that the plan takes: the smallest budget that it fits into; 0 without a plan
};

// The planner of one graph on one machine. All budgets that it is asked with share the plans that are made on
// the way. Keeps references: graph and machine must outlive it. One thread at a time.
//
// A budget takes the fastest plan that is found among those that fit into it, and every device budget from
// the minimum up is feasible. More memory makes a plan slower by no more than PlannerSettings::close_enough,
// unless most_work and patience end the search before (docs/design.md, section 6). Which budgets were asked
// before may change a plan's time by as much.
class Planner {
 public:
  Planner(const Graph& graph, const Machine& machine, const PlanOptions& options = {});
  ~Planner();
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;

  // Throws InvalidInput for a graph without an update phase, Cancelled where PlanOptions::stop asks for it;
  // so do the functions below.
  Answer answer(const Budget& budget);
  // Answer::need and Answer::minimum, which depend on no budget. With a policy that emulates another system
  // the minimum is the least of its configurations and may depend on the machine's rates.
  Bytes need_bytes();
  Bytes minimum_bytes();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

// One question to a planner of its own: Answer::outcome, Answer::need, Answer::minimum.
std::variant<Plan, Infeasible> make_plan(const Graph& graph, const Machine& machine, const Budget& budget,
                                         const PlanOptions& options = {});
Bytes need_bytes(const Graph& graph, const Machine& machine);
Bytes minimum_bytes(const Graph& graph, const Machine& machine, const PlanOptions& options = {});

// Discrete events over the lanes, periodic steady state.
Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine);

// Judges a plan without knowing how it was made, over three unrolled steps. Returns what is wrong,
// one sentence each; empty: valid. Knows no machine: `budget.device` limits the arena (Machine::arena_in).
std::vector<std::string> validate(const Graph& graph, const Plan& plan, const Budget& budget);

}  // namespace stowage
