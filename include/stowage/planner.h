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
  // Emulations of other systems as plans, for comparisons by one engine and one simulation. Each says in
  // offload/plan/policies/ what of its original it reproduces. The fastest of the original's configurations
  // that fits is taken.
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
// Whether the policy stands for another system.
bool is_emulated(Policy policy);
// The names of all that do, for help texts: "zero-offload, …".
std::string emulated_names();
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
  // Residency: which choices are looked at (offload/plan/decisions/residency_program.h).
  // Moments (offload/plan/decisions/step_memory.h): rows of device memory in the linear program; at most 19.
  std::size_t memory_moments = 18;
  // Consecutive stages share a row. Those count that have at least this share of the row's most live bytes.
  double alike_stages = 0.95;
  // Shares of a cell's device memory that the program may fill, falling; transfers under way have the rest.
  std::vector<double> rooms{1, 0.97, 0.94, 0.9, 0.86, 0.8, 0.7, 0.6, 0.5, 0.4};
  // The program may give shares of several choices to one item or bucket that is alone in its class. Where
  // rounding these shares changes more than this share of the cell's memory, the program is solved again
  // with each of these choices.
  double undivided = 0.01;
  // A phase's length is also counted in two pieces, one behind the other
  // (offload/plan/decisions/step_cuts.h).
  bool cuts = true;
  // Some cuts of the front are looked for in the program's answers, each for one amount of device memory: the
  // least that a step needs plus this share of what a step with resident parameters takes. At most 4.
  std::vector<double> cut_shares{0.1, 0.3, 0.6};
  // For a parameter in slices, the program is also solved with each of these shares of its slices on the
  // device.
  std::vector<double> slice_shares{0, 0.25, 0.5, 0.75, 1};
  // Values may spill: they leave the device in every long gap, not only between forward and backward.
  bool spills = true;
  // Values that cross from one unit into the next may be remade by the op that made them.
  bool remakes = true;
  // More variants (offload/plan/search/cells.h), beside one tensor in each bucket and replays within units:
  // Buckets of a size that the link moves efficiently.
  bool efficient_buckets = true;
  // Replays of all of a Transformer block or nothing.
  bool whole_blocks = true;
  // Replays within so many consecutive units as one (offload/plan/problem/units.h), where at least
  // crossing_share of the activations' bytes crosses units.
  std::vector<std::uint32_t> joined_units{3, 6};
  double crossing_share = 0.25;
  // A rank's backward may gather a weight in front of so many exchanges of gradients that come earlier. The
  // peer lane is in order and would otherwise be idle while an exchange waits for its gradient. Where there
  // is no room for all of these gathers to be early, none is.
  std::uint32_t gathers_ahead = 2;
  // Host updates may begin before the gate (InstructionKind::speculate).
  bool speculates = true;
  // In the smallest cell, where the program sees no mixture that fits: shares of the updates that do, each
  // tried with all extreme choices.
  std::vector<double> early_shares{0.5, 0.6, 0.7, 0.8, 0.9, 1};
  // The program is solved until its value is this close to its own lower bound, as a share.
  double program_tolerance = 1e-4;
  // Transfers and replays may take longer than predicted. Plans and choices are compared by their time plus
  // a price for each transfer, in latencies of the link (Link::latency_seconds of h2d), and for each second
  // of replayed ops. A device that computes with the host's own cores (Machine::compute_beside_copy below 1)
  // has its own price for a transfer: threads wake when it begins and when it ends, which takes some 30 us of
  // processor time that no rate of the machine covers. In bench/ranking, 20 small models in half of their
  // need took about the same processor time with any price from 2 to 8 latencies, and a tenth more with 0.1.
  // Their replays took no longer than predicted.
  double transfer_risk = 0.1;
  double transfer_risk_on_cores = 3;
  double replay_price = 1e-3;
  // These prices decide between choices that take the same time. traffic_price: seconds for each second of a
  // transfer. occupancy_price: the price, as a share of the step's compute time, of having all buckets on the
  // device for the whole step; a bucket pays by its bytes and by the stages that it is there.
  // speculation_price: seconds for each second of an update before the gate, which may have to be made again;
  // with PlanOptions::optimizer_in_backward of one behind it, which needs its gradient in host memory until
  // then.
  double traffic_price = 1e-3;
  double occupancy_price = 1e-4;
  double speculation_price = 1e-3;

  // Cells (offload/plan/search/cells.h).
  // From one amount of device memory to the next: more by the share fine_step, up to fine_range times the
  // minimum; above that by coarse_step.
  double fine_step = 0.005, fine_range = 1.1, coarse_step = 0.02;
  // Amounts of host memory: unlimited; then from the most that any plan needs down to a host_range-th of it,
  // each less than the one before by the share host_step.
  double host_step = 0.05, host_range = 100;
  // The search ends where no plan in less memory can be faster than the best one by more than this share, by
  // the lower bound.
  double close_enough = 0.002;
  // It also ends once more than most_work ops have been scheduled (each schedule counts all ops of the
  // graph; one that is known counts, too), or in a search that is made again for the host memory that the
  // fastest plan takes, and `patience` amounts of device memory in a row brought no faster plan; or if in as
  // many of the largest no choices need as few host bytes as there are, since less device memory needs no
  // fewer. Cells with less than the largest host memory that fits are asked until most_work ops of theirs
  // have been scheduled; in the smallest device memory smallest_work times as many, since a program's time
  // says least of its roundings there (docs/gaps.md). It is asked last for budgets up to fine_range times its
  // size, too, so that they have its plans.
  std::size_t most_work = 400'000;
  std::size_t smallest_work = 3;
  std::size_t patience = 6;
  // A step of very many ops: a cell is asked for no smaller room once most_cell_work ops have been scheduled
  // for it, and no further cell once longest_work have been for all.
  std::size_t most_cell_work = 500'000;
  std::size_t longest_work = 1'500'000;
  // In each cell, at most so many changes of one or two decisions are tried, from each variant's best
  // choices. A graph with more single changes than that keeps its rounded choices: rounding costs it little.
  std::size_t trials = 100;
  // Caps on a schedule's live bytes, as shares of the cell's device memory. They are tried in turn until a
  // schedule finds places.
  std::vector<double> caps{0.99, 0.975, 0.96, 0.94, 0.92, 0.9, 0.85, 0.8, 0.7, 0.5};
  // After a candidate that finds no places, the cell's candidates with more than this share of its serial
  // bytes (Sketcher::serial_bytes) are left out, unless they are half as far above the minimum.
  double next_serial = 0.97;

  // Where more than this share of the decisions is unlike any other, mixtures are rounded in both ways
  // (ResidencyProgram::Rounding).
  double alone_share = 0.5;

  // For one budget, at most so many candidates of one cell are placed. The smallest cell has no such limit.
  std::size_t most_placed = 6;
  // Leads of places (offload/plan/schedule/transfer_places.h): how long an offset should be free before the
  // transfer that fills it and after the one that empties it, in units of that transfer's time; the most
  // wanted first.
  std::vector<double> place_leads{2, 1, 0.5, 0.25};
  // A branch-and-bound search for places, where the usual placement finds none
  // (offload/plan/schedule/places.h).
  bool search = true;
};

struct PlanOptions {
  Policy policy = Policy::automatic;
  // Target size of a parameter bucket. 0: the automatic policy tries one tensor in each bucket, and the size
  // that the link's curve makes efficient; an emulated system has its own sizes.
  Bytes bucket_bytes = 0;
  // Of micro-batches. None: the policy chooses. Without effect on a graph that can be run in one order only.
  std::optional<MicroBatchOrder> order = std::nullopt;
  Replays replays = Replays::within_blocks;  // of Policy::automatic
  // Host updates may be made for good before the gate (Plan::optimizer_in_backward), each as soon as its
  // gradient is there. Such a gradient needs no host memory of its own, and no update an undo record. In
  // return a step whose loss or gradients are not finite, or that fails before its gate, leaves weights and
  // optimizer state lost. An update that the plan leaves behind the gate keeps its gradient until then: that
  // is faster where forward hides it, so give less of Budget::host to have fewer of these. Of
  // Policy::automatic; InvalidInput with any other, and for a graph that clips gradients or has f16
  // parameters, whose steps may have to be left out.
  bool optimizer_in_backward = false;
  PlannerSettings settings{};  // of Policy::automatic
  // Any thread may ask for an end of planning through its stop_source. The planner's call under way throws
  // Cancelled within a fraction of a second, and so does every later call that needs something new.
  std::stop_token stop{};
};

// Seconds that a plan has against it beside its predicted time (PlannerSettings::transfer_risk,
// replay_price).
struct PlanPrice {
  double transfers = 0, replays = 0;
};

// The answer to one budget. Device bytes in it, those of Infeasible included, are bytes of a device budget:
// each includes Machine::overhead_bytes, so any of them can be asked for as a budget. The fields of a Plan
// leave the overhead out: Plan::device_peak_bytes is the size of the arena, as the engine allocates it.
// Plan::lower_bound_seconds is the lower bound for every plan in this budget.
struct Answer {
  std::variant<Plan, Infeasible> outcome;
  Bytes need = 0;     // with everything on the device and nothing recomputed: what Policy::none takes
  Bytes minimum = 0;  // the smallest that works, given enough host memory
  Bytes peak = 0;     // the smallest budget that the plan fits into; 0 without a plan
  PlanPrice price{};  // of the plan
  // Whether the search ended because by the lower bound nothing else is faster by more than
  // PlannerSettings::close_enough, or because nothing else is left to look at. If not, its limits of work
  // ended it.
  bool is_complete = true;
};

// The planner of one graph on one machine. It keeps the plans that it makes and offers each to every later
// budget that it fits into. So of budgets asked in rising order none has a plan of more time and price than
// one before. Keeps references: graph and machine must outlive it. One thread at a time.
//
// The answer to a budget is the plan of least time and price (PlannerSettings::transfer_risk) found among
// those that fit into it. Given enough host memory, every device budget from the minimum up is feasible. More
// memory makes a plan's time and price larger by no more than PlannerSettings::close_enough, unless most_work
// and patience end the search before (docs/design.md, section 6). Which budgets were asked before may change
// a plan's time by as much.
class Planner {
 public:
  Planner(const Graph& graph, const Machine& machine, const PlanOptions& options = {});
  ~Planner();
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;

  // Throws InvalidInput for a graph without an update phase, Cancelled where PlanOptions::stop asks for it.
  // So do the functions below.
  Answer answer(const Budget& budget);
  // Whether the search for the fastest plan finds one. Where it finds none, `answer` takes up to three times
  // as long again for plans of few host bytes, and may have one.
  bool fits(const Budget& budget);
  // Answer::need and Answer::minimum, which depend on no budget. With a policy that emulates another system
  // the minimum is the least of its configurations and may depend on the machine's rates.
  Bytes need_bytes();
  Bytes minimum_bytes();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

// The same for a single question: each makes a Planner and returns Answer::outcome, need or minimum.
std::variant<Plan, Infeasible> make_plan(const Graph& graph, const Machine& machine, const Budget& budget,
                                         const PlanOptions& options = {});
Bytes need_bytes(const Graph& graph, const Machine& machine);
Bytes minimum_bytes(const Graph& graph, const Machine& machine, const PlanOptions& options = {});

// How speculated updates end, in every step alike.
enum class Clipping : std::uint8_t {
  none,        // as they are
  unexpected,  // taken back and made again
  expected,    // not made before the gate, as the engine does where it expects that
};
// Predicts when each instruction of the plan runs on this machine, step after step, once all steps take the
// same time.
Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine,
                  Clipping clipping = Clipping::none);

// Judges a plan without knowing how it was made, over three unrolled steps. Returns what is wrong, one
// sentence each; empty: valid. Knows no machine: `budget.device` limits the arena (Machine::arena_in).
std::vector<std::string> validate(const Graph& graph, const Plan& plan, const Budget& budget);

}  // namespace stowage
