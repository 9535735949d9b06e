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
  within_blocks,  // any part of each half-block
  // A Transformer block's activations (with micro-batches: a half-block's) all or not at all, from its input,
  // as most systems checkpoint. For comparisons (docs/recompute.md).
  whole_blocks,
};

// Every technique and every constant of the automatic planner, to switch and to vary in ablations
// (bench/ablation). The records in bench/results justify the defaults. docs/planning.md explains the passes
// and their words; fields named share or shares are fractions.
struct PlannerSettings {
  // Residency: which choices are looked at (residency_program.h).
  // Rows of device memory in the linear program, each for a run of alike stages (step_memory.h); at most 19.
  std::size_t memory_moments = 18;
  // Consecutive stages with at least this fraction of a row's most live bytes belong to that row.
  double alike_stages = 0.95;
  // Fractions of a cell's device memory that the program may fill, falling; transfers under way have the
  // rest.
  std::vector<double> rooms{1, 0.97, 0.94, 0.9, 0.86, 0.8, 0.7, 0.6, 0.5, 0.4};
  // The program may give fractions of several choices to one item or bucket that is alone in its class. If
  // rounding them changes more than this fraction of the cell's memory, the program is solved again with each
  // of these choices.
  double undivided = 0.01;
  // A phase's length is also counted in two pieces, one behind the other (step_cuts.h).
  bool cuts = true;
  // Some cuts of the front are looked for in the program's answers, each for one amount of device memory: the
  // least that a step needs plus this fraction of what a step with resident parameters takes. At most 4.
  std::vector<double> cut_shares{0.1, 0.3, 0.6};
  // A parameter in slices: the program is also solved with each of these fractions of its slices on the
  // device.
  std::vector<double> slice_shares{0, 0.25, 0.5, 0.75, 1};
  // Values may spill: they leave the device in every long pause between two uses, not only between forward
  // and backward.
  bool spills = true;
  // Values that cross from one unit into the next may be remade by the op that made them.
  bool remakes = true;
  // More variants (cells.h), beside one tensor in each bucket and replays within units:
  // Buckets of a size that the link moves efficiently.
  bool efficient_buckets = true;
  // Replays of whole Transformer blocks or nothing.
  bool whole_blocks = true;
  // Replays within so many consecutive units as one (units.h), if at least crossing_share of the
  // activations' bytes crosses units.
  std::vector<std::uint32_t> joined_units{3, 6};
  double crossing_share = 0.25;
  // A rank's backward may gather a weight in front of so many exchanges of gradients that stand before it.
  // The peer lane is in order and would otherwise be idle while an exchange waits for its gradient. Either
  // all of these gathers are moved forward, or none if there is no room for all.
  std::uint32_t gathers_ahead = 2;
  // Host updates may begin before the gate (InstructionKind::speculate).
  bool speculates = true;
  // The smallest cell, where the program sees no mixture that fits: fractions of the updates that begin
  // before the gate, each tried with all extreme choices.
  std::vector<double> early_shares{0.5, 0.6, 0.7, 0.8, 0.9, 1};
  // The program is solved until its value is this close to its own lower bound, relatively.
  double program_tolerance = 1e-4;
  // Transfers and replays may take longer than predicted. Plans and choices are compared by their time plus a
  // price for each transfer, in latencies of the link (Link::latency_seconds of h2d), and for each second of
  // replayed ops. A device that computes with the host's own cores (Machine::compute_beside_copy below 1) has
  // a price of its own for a transfer: threads wake when it begins and when it ends, which takes some 30 us
  // of processor time that no rate of the machine covers. Twenty small models in half of their need
  // (bench/ranking) took about the same processor time with any price from 2 to 8 latencies, and a tenth more
  // with 0.1. Their replays took no longer than predicted.
  double transfer_risk = 0.1;
  double transfer_risk_on_cores = 3;
  double replay_price = 1e-3;
  // These prices decide between choices that take the same time. traffic_price: seconds for each second of a
  // transfer. occupancy_price: the price, as a fraction of the step's compute time, of having all buckets on
  // the device for the whole step; a bucket pays by its bytes and its stages there. speculation_price:
  // seconds for each second of an update before the gate, which may have to be made again; with
  // PlanOptions::optimizer_in_backward for each second of an update behind the gate, which needs its gradient
  // in host memory until then.
  double traffic_price = 1e-3;
  double occupancy_price = 1e-4;
  double speculation_price = 1e-3;

  // Cells (cells.h).
  // Steps from one amount of device memory to the next: fine_step, relatively, up to fine_range times the
  // minimum; above that coarse_step.
  double fine_step = 0.005, fine_range = 1.1, coarse_step = 0.02;
  // Amounts of host memory: unlimited; then from the most that any plan needs down to a host_range-th of it,
  // in steps of host_step, relatively.
  double host_step = 0.05, host_range = 100;
  // The search ends when, by the lower bound, no plan in less memory can be faster than the best one by more
  // than this fraction.
  double close_enough = 0.002;
  // The search also ends at limits of work, counted in scheduled ops (a schedule counts all ops of the graph,
  // known ones too):
  // - `patience` amounts of device memory in a row brought no faster plan, and more than most_work ops have
  //   been scheduled, or the search is a repeated one, for the host memory that the fastest plan takes.
  // - No choices need as few host bytes as there are in the `patience` largest amounts of device memory: less
  //   device memory needs no fewer.
  // - Cells with less than the largest host memory that fits: most_work ops. In the smallest device memory
  //   smallest_work times as many, since there a program's time says least of its roundings (docs/gaps.md).
  //   Budgets up to fine_range times that size end with it, too, so that they have its plans.
  std::size_t most_work = 400'000;
  std::size_t smallest_work = 3;
  std::size_t patience = 6;
  // Steps of very many ops: a cell is asked for no smaller room once most_cell_work ops have been scheduled
  // for it, and no further cell once longest_work have been for all.
  std::size_t most_cell_work = 500'000;
  std::size_t longest_work = 1'500'000;
  // Most changes of one or two decisions that are tried in a cell, from each variant's best choices. A graph
  // with more single changes than that keeps its rounded choices: rounding costs it little.
  std::size_t trials = 100;
  // Caps on a schedule's live bytes, as fractions of the cell's device memory. They are tried in turn until a
  // schedule finds places.
  std::vector<double> caps{0.99, 0.975, 0.96, 0.94, 0.92, 0.9, 0.85, 0.8, 0.7, 0.5};
  // After a candidate that finds no places, the cell's candidates with more than this fraction of its serial
  // bytes (Sketcher::serial_bytes) are left out, unless they are half as far above the minimum.
  double next_serial = 0.97;

  // If more than this fraction of the decisions is unlike any other, mixtures are rounded in both ways
  // (ResidencyProgram::Rounding).
  double alone_share = 0.5;

  // Most candidates of a cell that are placed for one budget. The smallest cell has no such limit.
  std::size_t most_placed = 6;
  // Leads of places (transfer_places.h): how long an offset should be free before the transfer that fills it
  // and after the one that empties it, in units of that transfer's time; the most wanted first.
  std::vector<double> place_leads{2, 1, 0.5, 0.25};
  // A branch-and-bound search for places, if the usual placement finds none (places.h).
  bool search = true;
};

struct PlanOptions {
  Policy policy = Policy::automatic;
  // Target size of a parameter bucket. 0: the automatic policy tries one tensor in each bucket, and the size
  // that the link's curve makes efficient; an emulated system has sizes of its own.
  Bytes bucket_bytes = 0;
  // The order of micro-batches. Not set: the policy chooses. It has no effect on a graph that can be run in
  // one order only.
  std::optional<MicroBatchOrder> order = std::nullopt;
  Replays replays = Replays::within_blocks;  // of Policy::automatic
  // Host updates may be made for good before the gate (Plan::optimizer_in_backward), each as soon as its
  // gradient is there. Such a gradient needs no host memory of its own, and no update an undo record. The
  // price: a step whose loss or gradients are not finite, or that fails before its gate, leaves weights and
  // optimizer state lost. An update that the plan leaves behind the gate keeps its gradient until then: that
  // is faster if forward hides it, so give less of Budget::host to have fewer such updates. Requires
  // Policy::automatic and a graph that neither clips gradients nor has f16 parameters, whose steps may have
  // to be left out; else InvalidInput.
  bool optimizer_in_backward = false;
  PlannerSettings settings{};  // of Policy::automatic
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
  Bytes minimum = 0;  // the smallest that works, given enough host memory
  Bytes peak = 0;     // the smallest budget that the plan fits into; 0 without a plan
  PlanPrice price{};  // of the plan
  // True: the search ended because nothing else can be faster by more than PlannerSettings::close_enough, or
  // nothing was left to look at. False: its limits of work ended it.
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

  // Throws InvalidInput for a graph without an update phase, Cancelled if PlanOptions::stop asks for it; the
  // functions below, too.
  Answer answer(const Budget& budget);
  // True if the search for the fastest plan finds one. If it finds none, `answer` takes up to three times as
  // long again for plans of few host bytes, and may have one.
  bool fits(const Budget& budget);
  // Answer::need and Answer::minimum, which depend on no budget. The minimum of an emulated system is the
  // least of its configurations and may depend on the machine's rates.
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
  none,        // as they are
  unexpected,  // undone and made again
  expected,    // not made before the gate, as the engine does if it expects clipping
};
// Predicts when each instruction of the plan runs on this machine, step after step, once all steps take the
// same time.
Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine,
                  Clipping clipping = Clipping::none);

// Judges a plan without knowing how it was made, over three unrolled steps. Refuses a plan that reads a value
// before it is there, overlaps two live ranges, breaks a budget, loses a gradient or applies it twice, leaves
// a parameter stale, or deadlocks. Returns a sentence for each fault; empty: valid. Knows no machine:
// `budget.device` limits the arena (Machine::arena_in).
std::vector<std::string> validate(const Graph& graph, const Plan& plan, const Budget& budget);

}  // namespace stowage
