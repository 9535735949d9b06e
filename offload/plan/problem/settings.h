// PlannerSettings: the techniques of the automatic policy, to be switched off one by one, and all its
// constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "stowage/planner.h"

namespace stowage {

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
  // Variants whose replays rebuild whole Transformer blocks or nothing.
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
  // a price of its own for a transfer: threads wake when a transfer begins and when it ends, which takes some
  // 30 us of processor time that no rate of the machine covers. Twenty small models in half of their need
  // (bench/ranking) took about the same processor time with any price from 2 to 8 latencies, and a tenth more
  // with 0.1. Replays in these models took no longer than predicted.
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
  // - Cells with less than the largest host memory that fits have scheduled most_work ops. In the smallest
  //   device memory the limit is smallest_work times as many, since there a program's time predicts its
  //   roundings least (docs/gaps.md). At its limit, a search for a budget of up to fine_range times that
  //   memory still looks at the smallest device memory, so that the budget has its plans.
  std::size_t most_work = 400'000;
  std::size_t smallest_work = 3;
  std::size_t patience = 6;
  std::size_t fits_patience = 2;  // in place of `patience` where only feasibility is asked (Planner::fits)
  // Limits for steps of very many ops: a cell tries no smaller room once most_cell_work ops have been
  // scheduled for it, and no further cell is searched once longest_work ops have been scheduled in all.
  std::size_t most_cell_work = 500'000;
  std::size_t longest_work = 1'500'000;
  // Most changes of one or two decisions that are tried in a cell, from each variant's best choices. A graph
  // with more single changes than that keeps its rounded choices: rounding costs it little.
  std::size_t trials = 100;
  // Caps on a schedule's live bytes, as fractions of the cell's device memory. The caps are tried in turn
  // until a schedule finds places.
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

// Gives the options settings of their own and returns them, to be changed before a Planner is made of the
// options.
inline PlannerSettings& own_settings(PlanOptions& options) {
  const auto own =
      std::make_shared<PlannerSettings>(options.settings ? *options.settings : PlannerSettings{});
  options.settings = own;
  return *own;
}

}  // namespace stowage
